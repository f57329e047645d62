# Starting and stopping the processes of a control plane. Sourced after common.sh, by scripts that call `state_dir` first.
# shellcheck shell=bash
# shellcheck disable=SC2154 # common.sh sets $binaries and $helper

# How long a start may take, and an orderly stop, in seconds. A start takes 5 to 10; the rest is for machines with much else to do.
start_timeout=120
stop_timeout=20

# state_dir DIR: everything of one control plane lies below $dir, what nobody else needs to see in $data.
state_dir() {
    dir="$(cd "$1" && pwd -P)"
    data="$dir/data"
}

# Reads the ports that `up` chose.
read_ports() {
    read -r etcd_port peer_port api_port <"$data/ports"
}

# The arguments of a process. /proc comes first because small images lack ps.
command_line() {
    if [[ -d /proc/self ]]; then
        # The process may end between two looks at it.
        { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null
    else
        ps -ww -p "$1" -o args=
    fi
}

# Whether NAME runs. The kernel may have given its id to another process since: ours have this folder in their arguments. A process that
# has only just been forked, or is being replaced by `exec`, does not show them yet: it gets a second to.
alive() {
    local pid
    [[ -s "$dir/$1.pid" ]] && read -r pid <"$dir/$1.pid" || return 1
    for _ in {1..20}; do
        kill -0 "$pid" 2>/dev/null || return 1
        [[ "$(command_line "$pid")" != *"$data"* ]] || return 0
        sleep 0.05
    done
    return 1
}

# start NAME FLAG...: in the background, in a process group of its own so that Ctrl-C at the terminal does not reach it, with nothing of
# the caller's environment (etcd takes flags from it) and without the lock.
start() {
    local name="$1"
    shift
    set -m
    nohup env -i PATH="$PATH" HOME="$data" TMPDIR="${TMPDIR:-/tmp}" "$binaries/$name" "$@" >>"$dir/$name.log" 2>&1 </dev/null 9>&- &
    printf '%s\n' "$!" >"$dir/$name.pid"
    disown
    set +m
}

# stop NAME [SIGNAL]: asks first, and kills what does not heed it in time.
stop() {
    local name="$1" signal="${2:-TERM}" pid deadline
    if alive "$name"; then
        read -r pid <"$dir/$name.pid"
        for signal in "$signal" KILL; do
            kill "-$signal" "$pid" 2>/dev/null || true
            deadline=$((SECONDS + stop_timeout))
            while alive "$name" && ((SECONDS < deadline)); do sleep 0.1; done
            alive "$name" || break
            say "$name (process $pid) does not stop within $stop_timeout s of signal $signal"
        done
        if alive "$name"; then fail "$name (process $pid) cannot be stopped: see $dir/$name.log"; fi
    fi
    rm -f "$dir/$name.pid"
}

# The API server stops before etcd: without etcd it would wait for it, and not stop. Where etcd died first, there is no use in asking.
stop_all() {
    local signal=TERM
    alive etcd || signal=KILL
    stop kube-controller-manager
    stop kube-apiserver "$signal"
    stop etcd
}

# Stops everything, and leaves nothing but the logs: the credentials open no door any more.
remove_all() {
    stop_all
    rm -rf "$data" "$dir/kubeconfig"
}

# One member, and mutual TLS: other users of the machine reach the loopback interface too, but not the data.
start_etcd() {
    local client="https://127.0.0.1:$etcd_port" peer="https://127.0.0.1:$peer_port"
    # The data do not outlive the run, so they need not reach the disk: no fsync. 512 MiB hold some 100000 small objects.
    start etcd --name=reference --data-dir="$data/etcd" --log-level=warn --unsafe-no-fsync \
        --quota-backend-bytes=$((512 * 1024 * 1024)) \
        --listen-client-urls="$client" --advertise-client-urls="$client" \
        --client-cert-auth --trusted-ca-file="$data/ca.crt" --cert-file="$data/etcd.crt" --key-file="$data/etcd.key" \
        --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="reference=$peer" \
        --peer-client-cert-auth --peer-trusted-ca-file="$data/ca.crt" \
        --peer-cert-file="$data/etcd.crt" --peer-key-file="$data/etcd.key"
}

# The flags in $data/kube-apiserver.flags come last, so that they win.
start_apiserver() {
    local flag extra=()
    while read -r flag; do extra+=("$flag"); done <"$data/kube-apiserver.flags"
    # No endpoints for the service `kubernetes`: a loopback address is not allowed there, and no pod would use it. By default the server
    # would keep watches open for a minute after it was told to stop: with a grace period it ends them. The range has an address for each of
    # the Services of a test with thousands.
    start kube-apiserver --bind-address=127.0.0.1 --secure-port="$api_port" --advertise-address=127.0.0.1 --endpoint-reconciler-type=none \
        --tls-cert-file="$data/apiserver.crt" --tls-private-key-file="$data/apiserver.key" --cert-dir="$data" \
        --etcd-servers="https://127.0.0.1:$etcd_port" --etcd-cafile="$data/ca.crt" \
        --etcd-certfile="$data/etcd-client.crt" --etcd-keyfile="$data/etcd-client.key" \
        --service-cluster-ip-range=10.0.0.0/16 --allow-privileged=true \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$data/service-account.pub" \
        --service-account-signing-key-file="$data/service-account.key" \
        --authorization-mode=RBAC --token-auth-file="$data/tokens.csv" --disable-admission-plugins=ServiceAccount \
        --shutdown-watch-termination-grace-period=2s \
        ${extra[@]+"${extra[@]}"}
}

# start_controller_manager NAMES: it listens nowhere, and does not elect: it is the only one.
start_controller_manager() {
    start kube-controller-manager --kubeconfig="$dir/kubeconfig" --secure-port=0 --bind-address=127.0.0.1 --leader-elect=false --controllers="$1" \
        --root-ca-file="$data/ca.crt" --service-account-private-key-file="$data/service-account.key" \
        --use-service-account-credentials=true --cert-dir="$data"
}

# answers PATH: whether the API server says yes there, to who trusts only this control plane's authority.
answers() {
    "$binaries/kubectl" --kubeconfig="$dir/kubeconfig" --request-timeout=5s get --raw "$1" >/dev/null 2>&1
}

# await PATH NAME...: until the path answers; no longer than the processes of these names live.
await() {
    local path="$1" name deadline=$((SECONDS + start_timeout))
    shift
    until answers "$path"; do
        for name in "$@"; do alive "$name" || return 1; done
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# /readyz does not wait for the namespace `default`, but who uses a cluster expects it.
await_apiserver() {
    await /readyz etcd kube-apiserver && await /api/v1/namespaces/default etcd kube-apiserver
}

# The end of each log, for who can see this run's output but not its files.
show_logs() {
    local name
    for name in "$@"; do
        [[ -s "$dir/$name.log" ]] || continue
        say "the end of $dir/$name.log:"
        tail -n 15 "$dir/$name.log" >&2
    done
}

# check_flags FLAG...: before anything is stopped or started, whether these can be flags at all.
check_flags() {
    local flag
    for flag in "$@"; do
        [[ "$flag" == --?* ]] || fail "'$flag' after -- is not a flag of kube-apiserver: write --name=value"
    done
}

# keep_flags FLAG...: what the user wants the API server to be told, for restarts too.
keep_flags() {
    local flag
    for flag in "$@"; do printf '%s\n' "$flag"; done >"$data/kube-apiserver.flags"
}
