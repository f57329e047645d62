// What can the scripts beside us not do in bash? Certificates, free ports, and a word with etcd.
package main

import (
	"fmt"
	"os"
)

const usage = `usage: helper credentials DIR | helper ports COUNT | helper kubeconfig DIR PORT | helper compact DIR PORT`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	switch command, rest := args[0], args[1:]; {
	case command == "credentials" && len(rest) == 1:
		return credentials(rest[0])
	case command == "ports" && len(rest) == 1:
		return ports(rest[0])
	case command == "kubeconfig" && len(rest) == 2:
		return kubeconfig(rest[0], rest[1])
	case command == "compact" && len(rest) == 2:
		return compact(rest[0], rest[1])
	}
	return fmt.Errorf("%s", usage)
}
