# Whose is the child? Makes it the parent's, which the child keeps from going before it.
owner="{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"parent\",\"uid\":\"$1\",\"blockOwnerDeletion\":true}"
kubectl patch configmap child --type=merge -p "{\"metadata\":{\"ownerReferences\":[$owner]}}"
