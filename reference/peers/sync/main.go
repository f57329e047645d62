// What does the first sync of an informer for Pods cost? For `bench sync`: prints one line of JSON, as `bench informer` does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// How long the sync may take.
const patience = 5 * time.Minute

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of the server")
	objects := flag.Int("objects", 0, "how many Pods the server has")
	media := flag.String("media", "application/vnd.kubernetes.protobuf", "the media type of lists and watches")
	flag.Parse()
	if err := run(*kubeconfig, *objects, *media); err != nil {
		fmt.Fprintln(os.Stderr, "sync:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, objects int, media string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = media
	config.AcceptContentTypes = media
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	var added atomic.Int64
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { added.Add(1) }})
	if err != nil {
		return err
	}
	started, cpu := time.Now(), cpuTime()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("not synced within %v", patience)
	}
	wall, cpu := time.Since(started), cpuTime()-cpu
	if cached := len(pods.GetStore().ListKeys()); cached != objects || int(added.Load()) != objects {
		return fmt.Errorf("the server was to have %d objects, the cache has %d", objects, cached)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"phase": "sync", "objects": objects, "wall_s": seconds(wall), "cpu_s": seconds(cpu),
		"rss_mb": megabytes("VmRSS:"), "peak_mb": megabytes("VmHWM:"),
	})
}

// cpuTime is the time of all threads, user and kernel.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func seconds(duration time.Duration) float64 {
	return math.Round(duration.Seconds()*1e5) / 1e5
}

// megabytes reads a line of the status of this process.
func megabytes(line string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), line)
	kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), " kB"))
	return math.Round(float64(kib)*1024/1e5) / 10
}
