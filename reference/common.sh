# Names, paths, messages and locks that the scripts share. Sourced, with $here set to this directory.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # the scripts that source this file use what it sets, and set $here

# The first version that go.mod gives for the module.
version_of() {
    sed -n "s|^[[:space:]]*$1 \(v[^ ]*\).*|\1|p" "$here/go.mod" | head -n 1
}

kubernetes_version="$(version_of k8s.io/kubernetes)"
etcd_version="$(version_of go.etcd.io/etcd/server/v3)"
# Outside the checkout, and by version: the checkouts and branches of a machine share what is built.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/watchkeeper/reference/kubernetes-$kubernetes_version-etcd-$etcd_version-$(uname -s)-$(uname -m)"
binaries="$cache/bin"
# By content: the helper changes with the checkout, not with the versions.
helper="$cache/helper-$(cat "$here"/helper/*.go | cksum | cut -d ' ' -f 1)"
# Go programs that are clients: Kubernetes' sample controller, by version, and our own, by content.
peers="$cache/peers-$(version_of k8s.io/sample-controller)-$(cat "$here"/peers/*/*.go | cksum | cut -d ' ' -f 1)"
# Kubernetes' own end-to-end tests, by what decides on their contents, and the program that runs a list of them.
e2e="$cache/e2e.test-$(cat "$here"/e2e/go.mod "$here"/e2e/go.sum | cksum | cut -d ' ' -f 1)"
runner="$cache/e2e-runner-$(cat "$here"/e2e/runner/*.go | cksum | cut -d ' ' -f 1)"

say() {
    printf 'reference: %s\n' "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

# lock FILE: waits until no other script holds it; held until the script ends. Without flock (macOS) runs may do work twice, but what they
# build is renamed into place and stays whole.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$1"
    flock --nonblock 9 || { say "waiting for another run that holds $1" && flock 9; }
}
