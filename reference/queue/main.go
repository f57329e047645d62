// Benchmark of client-go's work queue: the workload of `bench -- queue`, with the same keys and the same output.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	rounds = 10_000_000
	batch  = 1_000
)

func main() {
	workqueue.SetProvider(counters{})
	lines := json.NewEncoder(os.Stdout)
	for _, phase := range []func() any{alone, crowd} {
		if err := lines.Encode(phase()); err != nil {
			fmt.Fprintln(os.Stderr, "queue:", err)
			os.Exit(1)
		}
	}
}

func keys(from, to int) []cache.ObjectName {
	var keys []cache.ObjectName
	for number := from; number < to; number++ {
		name := cache.ObjectName{Namespace: fmt.Sprintf("team-%03d", number%100), Name: fmt.Sprintf("service-%07d", number)}
		keys = append(keys, name)
	}
	return keys
}

func queue() workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	config := workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "bench"}
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)
}

// One goroutine adds a key, gets it, forgets its failures and is done with it.
func alone() any {
	queue, keys := queue(), keys(0, 100)
	var batches []time.Duration
	for range rounds / batch {
		start := time.Now()
		for round := range batch {
			queue.Add(keys[round%len(keys)])
			key, _ := queue.Get()
			queue.Forget(key)
			queue.Done(key)
		}
		batches = append(batches, time.Since(start))
	}
	slices.SortFunc(batches, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	return struct {
		Phase  string  `json:"phase"`
		Median float64 `json:"ns_per_round"`
		Best   float64 `json:"best_ns_per_round"`
	}{"alone", per(batches[len(batches)/2], batch), per(batches[0], batch)}
}

// Two producers and two workers, each a goroutine, until every key added last was handed out.
func crowd() any {
	const share, of = rounds / 2, 100_000
	queue := queue()
	var producers, workers sync.WaitGroup
	var runs atomic.Int64
	sets := [][]cache.ObjectName{keys(0, of), keys(of, 2*of)}
	start := time.Now()
	for _, keys := range sets {
		producers.Go(func() {
			for number := range share {
				queue.Add(keys[number%of])
			}
		})
		workers.Go(func() {
			for {
				key, stopped := queue.Get()
				if stopped {
					return
				}
				runs.Add(1)
				queue.Forget(key)
				queue.Done(key)
			}
		})
	}
	producers.Wait()
	queue.ShutDown()
	workers.Wait()
	took := time.Since(start)
	return struct {
		Phase  string  `json:"phase"`
		Runs   int64   `json:"runs"`
		PerAdd float64 `json:"ns_per_add"`
		PerRun float64 `json:"ns_per_run"`
	}{"crowd", runs.Load(), per(took, 2*share), per(took, int(runs.Load()))}
}

func per(whole time.Duration, parts int) float64 {
	return float64(whole.Nanoseconds()*10/int64(parts)) / 10
}

// Metrics that only add to a number: less than any exporter does.
type counters struct{}

type number struct{ atomic.Int64 }

func (n *number) Inc()              { n.Add(1) }
func (n *number) Dec()              { n.Add(-1) }
func (n *number) Observe(v float64) { n.Add(int64(v)) }
func (n *number) Set(v float64)     { n.Store(int64(v)) }

func (counters) NewDepthMetric(string) workqueue.GaugeMetric            { return new(number) }
func (counters) NewAddsMetric(string) workqueue.CounterMetric           { return new(number) }
func (counters) NewLatencyMetric(string) workqueue.HistogramMetric      { return new(number) }
func (counters) NewWorkDurationMetric(string) workqueue.HistogramMetric { return new(number) }
func (counters) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(number)
}
func (counters) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(number)
}
func (counters) NewRetriesMetric(string) workqueue.CounterMetric { return new(number) }
