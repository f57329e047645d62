// Which ports are free on the loopback interface?
package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports lie below those that the kernel gives to outgoing connections: such a connection could take the API server's port while
// it restarts, or a client that dials the port in vain could even be connected with itself.
const (
	lowest  = 20000
	highest = 32000
)

// ports prints that many distinct free ports on one line.
func ports(count string) error {
	wanted, err := strconv.Atoi(count)
	if err != nil || wanted < 1 || wanted > 16 {
		return fmt.Errorf("ports: %q is not a number from 1 to 16", count)
	}
	// Each listener stays open until all ports are found, so that none is found twice.
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			listener.Close()
		}
	}()
	for tries := 0; len(listeners) < wanted; tries++ {
		if tries == 1000 {
			return fmt.Errorf("ports: none free on 127.0.0.1 from %d to %d: stop what listens there", lowest, highest)
		}
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		if listener, err := net.Listen("tcp4", address); err == nil {
			listeners = append(listeners, listener)
		}
	}
	for i, listener := range listeners {
		if i > 0 {
			fmt.Print(" ")
		}
		fmt.Print(listener.Addr().(*net.TCPAddr).Port)
	}
	fmt.Println()
	return nil
}
