# Which changes does a watch show? Opens one, waits for its first line, makes a change, waits for the next, and so on.
mkfifo lines
kubectl get configmaps -l watched=yes -w --output-watch-events --no-headers >lines &
watch=$!
exec 3<lines
read -r line <&3 && echo "$line"
kubectl label configmap watched more=yes >/dev/null
read -r line <&3 && echo "$line"
kubectl delete configmap watched >/dev/null
read -r line <&3 && echo "$line"
kill $watch
