// Runs a list of Kubernetes' own end-to-end tests against a cluster, and reports each: docs/upstream-e2e.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// options are the flags of the command line.
type options struct {
	binary, kubectl, kubeconfig, list, marks, match, out string
	processes, batch                                     int
	limit                                                time.Duration
	again                                                bool
}

func parse() (options, error) {
	var o options
	flag.StringVar(&o.binary, "e2e", "", "path of e2e.test")
	flag.StringVar(&o.kubectl, "kubectl", "", "path of kubectl")
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path of the cluster's kubeconfig")
	flag.StringVar(&o.list, "list", "", "file with one test per line")
	flag.StringVar(&o.marks, "marks", "quick,slow", "marks of the tests to run: quick, slow, fails, untried")
	flag.StringVar(&o.match, "match", "", "run only the tests whose name matches this regular expression")
	flag.StringVar(&o.out, "out", "", "folder for the log of each process [default: none is kept]")
	flag.IntVar(&o.processes, "processes", 3, "number of processes at a time")
	flag.IntVar(&o.batch, "batch", 12, "number of tests per process")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "time limit per test")
	flag.BoolVar(&o.again, "again", false, "run each test that failed once more, alone: on a busy machine some time out")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	for name, value := range map[string]string{"e2e": o.binary, "kubectl": o.kubectl, "kubeconfig": o.kubeconfig, "list": o.list} {
		if value == "" {
			return o, fmt.Errorf("flag -%s is missing", name)
		}
	}
	if o.processes < 1 || o.batch < 1 || o.limit <= 0 {
		return o, fmt.Errorf("-processes, -batch and -limit must be positive")
	}
	return o, nil
}

// selected reads the names of the tests to run.
func selected(o options) ([]string, error) {
	tests, err := readList(o.list)
	if err != nil {
		return nil, err
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, fmt.Errorf("-match: %w", err)
	}
	wanted := map[string]bool{}
	for _, mark := range strings.Split(o.marks, ",") {
		wanted[mark] = true
	}
	var names []string
	for _, test := range tests {
		if wanted[test.mark] && match.MatchString(test.name) {
			names = append(names, test.name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no test with these marks (%s) that matches %q", o.list, o.marks, o.match)
	}
	return names, nil
}

func main() {
	o, err := parse()
	if err != nil {
		fail(err)
	}
	names, err := selected(o)
	if err != nil {
		fail(err)
	}
	remove, err := ensureNode(o)
	if err != nil {
		fail(err)
	}
	started := time.Now()
	outcomes, err := runAll(o, names)
	if err == nil && o.again {
		err = retry(o, outcomes)
	}
	remove()
	if err != nil {
		fail(err)
	}
	if !summarize(outcomes, time.Since(started)) {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	os.Exit(2)
}
