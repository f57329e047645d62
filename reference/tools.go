//go:build tools

// The modules to build from the module proxy. Never compiled: the blank imports keep `go mod tidy` from dropping them.
package reference

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/sample-controller"
)
