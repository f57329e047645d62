// Batches of tests: which run beside each other, and which run again because their process ended before they began.
package main

import (
	"slices"
	"strings"
	"sync"
)

// runAll runs the tests that bear company in several processes at a time, then the serial ones.
func runAll(o options, names []string) ([]outcome, error) {
	var shared, serial []string
	for _, name := range names {
		if strings.Contains(name, "[Serial]") || strings.Contains(name, "[Disruptive]") {
			serial = append(serial, name)
		} else {
			shared = append(shared, name)
		}
	}
	outcomes, err := runBatches(o, split(shared, o.batch), o.processes)
	if err != nil {
		return nil, err
	}
	last, err := runBatches(o, split(serial, o.batch), 1)
	if err != nil {
		return nil, err
	}
	outcomes = append(outcomes, last...)
	slices.SortFunc(outcomes, func(a, b outcome) int { return strings.Compare(a.name, b.name) })
	return outcomes, nil
}

// split deals the names out to batches of at most size, so that neighbours in the list, which are alike, are in different ones.
func split(names []string, size int) [][]string {
	count := (len(names) + size - 1) / size
	batches := make([][]string, count)
	for i, name := range names {
		batches[i%count] = append(batches[i%count], name)
	}
	return batches
}

// runBatches runs so many processes at a time. The tests that a process did not come to run again, each alone.
func runBatches(o options, batches [][]string, processes int) ([]outcome, error) {
	var (
		outcomes []outcome
		first    error
		lock     sync.Mutex
		workers  sync.WaitGroup
		work     = make(chan []string)
	)
	for range processes {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for batch := range work {
				done, err := runBatch(o, batch)
				lock.Lock()
				outcomes = append(outcomes, done...)
				if err != nil && first == nil {
					first = err
				}
				lock.Unlock()
			}
		}()
	}
	for _, batch := range batches {
		work <- batch
	}
	close(work)
	workers.Wait()
	return outcomes, first
}

func runBatch(o options, batch []string) ([]outcome, error) {
	outcomes, err := runProcess(o, batch)
	if err != nil || len(batch) == 1 {
		return outcomes, err
	}
	var settled []outcome
	for _, it := range outcomes {
		if it.state != notRun {
			settled = append(settled, it)
			continue
		}
		again, err := runProcess(o, []string{it.name})
		if err != nil {
			return nil, err
		}
		settled = append(settled, again...)
	}
	return settled, nil
}

// retry runs each test that failed once more, alone, and replaces its outcome if it passes.
func retry(o options, outcomes []outcome) error {
	for i, it := range outcomes {
		if it.state != failed {
			continue
		}
		again, err := runProcess(o, []string{it.name})
		if err != nil {
			return err
		}
		if again[0].state == passed {
			again[0].why = "passed alone, after: " + it.why
			outcomes[i] = again[0]
		}
	}
	return nil
}
