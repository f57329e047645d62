//go:build tools

// The package whose tests are built. Never compiled: the blank import keeps `go mod tidy` from dropping it.
package e2e

import _ "k8s.io/kubernetes/test/e2e"
