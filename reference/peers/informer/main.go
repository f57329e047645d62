// Does a cache of client-go end up equal to a list? Shared informers for a few kinds, which compare when they are told to on standard input.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// How long a cache may take to catch up with a list.
const patience = 60 * time.Second

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of the server")
	namespace := flag.String("namespace", "", "the namespace to look at; all if empty")
	custom := flag.String("custom", "", "a custom kind to look at too, as resource.version.group")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *namespace, *custom); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, custom string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	mirrors, err := builtin(ctx, typed, factory, namespace)
	if err != nil {
		return err
	}
	customs := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, namespace, nil)
	if custom != "" {
		resource, _ := schema.ParseResourceArg(custom)
		if resource == nil {
			return fmt.Errorf("%q is not a kind: write resource.version.group", custom)
		}
		mirror, err := customMirror(ctx, untyped, customs, *resource, namespace)
		if err != nil {
			return err
		}
		mirrors = append(mirrors, mirror)
	}
	factory.Start(ctx.Done())
	customs.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("the cache of %s does not sync", kind)
		}
	}
	for kind, synced := range customs.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("the cache of %s does not sync", kind)
		}
	}
	fmt.Println("synced")
	return compareWhenTold(ctx, mirrors)
}

// compareWhenTold answers each line of standard input with one line per kind and the line "compared"; the end of the input ends the program.
func compareWhenTold(ctx context.Context, mirrors []*mirror) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, more := <-lines:
			if !more {
				return nil
			}
		}
		for _, mirror := range mirrors {
			fmt.Println(mirror.catchUp(ctx))
		}
		fmt.Println("compared")
	}
}
