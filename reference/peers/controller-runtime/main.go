// The Website operator of `bench controller` on controller-runtime, which its standard input triggers and asks.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func main() {
	url := flag.String("server", "", "the URL of the API server")
	workers := flag.Int("workers", 4, "how many Websites are reconciled at once")
	always := flag.Bool("always", false, "apply the children though nothing has changed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stop, *url, *workers, *always); err != nil {
		fmt.Fprintln(os.Stderr, "controller-runtime:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stop func(), url string, workers int, always bool) error {
	// As a program that logs nothing: the logger of a run costs the least.
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, addToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	// No limit of the client's own, as the other side has none.
	manager, err := ctrl.NewManager(&rest.Config{Host: url, QPS: -1}, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	keys := make(chan event.GenericEvent)
	reconciler := &reconciler{client: manager.GetClient(), always: always}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Website{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		WatchesRawSource(source.Channel(keys, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler)
	if err != nil {
		return err
	}
	go obey(stop, reconciler, keys)
	return manager.Start(ctx)
}

// obey follows standard input: "count" prints how many reconciles have ended, "enqueue NAMESPACE/NAME" reconciles a Website. Its end
// stops the program.
func obey(stop func(), reconciler *reconciler, keys chan<- event.GenericEvent) {
	defer stop()
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		command, key, _ := strings.Cut(scanner.Text(), " ")
		switch command {
		case "count":
			fmt.Println(reconciler.reconciles.Load())
		case "enqueue":
			namespace, name, _ := strings.Cut(key, "/")
			keys <- event.GenericEvent{Object: &Website{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
		}
	}
}
