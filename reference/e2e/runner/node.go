// A node for clusters without one: the tests' own set-up wants a ready node, and some tests want one to name.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	nodeName = "e2e-fake-node"
	// heartbeat is how often the node says that it is ready: a node that does not say so for 40 s counts as dead.
	heartbeat = 10 * time.Second
)

// nodes is the part of a list of nodes that is read.
type nodes struct {
	Items []struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
}

func (n nodes) haveReady() bool {
	for _, node := range n.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				return true
			}
		}
	}
	return false
}

// ensureNode makes a ready node if the cluster has none, and keeps it ready until the returned function is called, which deletes it.
func ensureNode(o options) (func(), error) {
	text, err := kubectl(o, "get", "nodes", "-o", "json")
	if err != nil {
		return nil, err
	}
	var found nodes
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("kubectl get nodes: %w", err)
	}
	if found.haveReady() {
		return func() {}, nil
	}
	fmt.Printf("the cluster has no ready node: making %s, which runs nothing\n", nodeName)
	node := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q, "labels": {"kubernetes.io/hostname": %q, "kubernetes.io/os": "linux"}}}`,
		nodeName, nodeName)
	if err := withInput(o, node, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if err := beat(o); err != nil {
		return nil, err
	}
	// A new node is tainted until a controller sees that it is ready; there may be none.
	_, _ = kubectl(o, "taint", "node", nodeName, "node.kubernetes.io/not-ready-")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				// A test may delete all nodes, and then this one is missed by nobody.
				_ = beat(o)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		_, _ = kubectl(o, "delete", "node", nodeName, "--ignore-not-found", "--wait=false")
	}, nil
}

// beat says that the node is ready.
func beat(o options) error {
	now := time.Now().UTC().Format(time.RFC3339)
	status := fmt.Sprintf(`{"status": {
		"addresses": [{"type": "InternalIP", "address": "172.18.255.2"}, {"type": "Hostname", "address": %q}],
		"allocatable": {"cpu": "1k", "memory": "1Ti", "pods": "10k", "ephemeral-storage": "1Ti"},
		"capacity": {"cpu": "1k", "memory": "1Ti", "pods": "10k", "ephemeral-storage": "1Ti"},
		"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
			"lastHeartbeatTime": %q, "lastTransitionTime": %q}]}}`, nodeName, now, now)
	_, err := kubectl(o, "patch", "node", nodeName, "--subresource=status", "--type=merge", "-p", status)
	return err
}

func kubectl(o options, arguments ...string) ([]byte, error) {
	text, err := exec.Command(o.kubectl, append([]string{"--kubeconfig=" + o.kubeconfig}, arguments...)...).Output()
	return text, explain(arguments, err)
}

func withInput(o options, input string, arguments ...string) error {
	command := exec.Command(o.kubectl, append([]string{"--kubeconfig=" + o.kubeconfig}, arguments...)...)
	command.Stdin = strings.NewReader(input)
	_, err := command.Output()
	return explain(arguments, err)
}

func explain(arguments []string, err error) error {
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return fmt.Errorf("kubectl %s: %s", arguments[0], firstLines(string(failed.Stderr)))
	}
	return err
}
