// How is etcd's history forgotten on command? In the way of the API server's own compactor, which else does so every five minutes.
package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// compactRevKey is where API servers tell each other what was compacted; they drop their cached snapshots when it changes.
const compactRevKey = "compact_rev_key"

// compact forgets all before the present revision, and prints that revision.
func compact(dir, port string) error {
	tls, err := transport.TLSInfo{
		TrustedCAFile: filepath.Join(dir, "ca.crt"),
		CertFile:      filepath.Join(dir, "etcd-client.crt"),
		KeyFile:       filepath.Join(dir, "etcd-client.key"),
	}.ClientConfig()
	if err != nil {
		return fmt.Errorf("compact: credentials in %s: %w", dir, err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://127.0.0.1:" + port},
		TLS:         tls,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return fmt.Errorf("compact: etcd at port %s: %w", port, err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	present, err := client.Get(ctx, compactRevKey)
	if err != nil {
		return fmt.Errorf("compact: read the revision from etcd at port %s: %w", port, err)
	}
	revision := present.Header.Revision
	if _, err := client.Put(ctx, compactRevKey, strconv.FormatInt(revision, 10)); err != nil {
		return fmt.Errorf("compact: note revision %d: %w", revision, err)
	}
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact: revision %d: %w", revision, err)
	}
	fmt.Println(revision)
	return nil
}
