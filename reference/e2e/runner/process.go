// One process of e2e.test: its arguments, its time limit, and what its report says of each test.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suite is the text before the name of each test, which the focus also matches.
const suite = "Kubernetes e2e suite "

// grace is how long a process may take beyond the limits of its tests, to start, to clean up and to write its report.
const grace = 2 * time.Minute

// report is the part of Ginkgo's report that is read.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct {
			Message  string
			Location struct {
				FileName   string
				LineNumber int
			}
		}
	}
}

// runProcess runs the tests in one process and returns the outcome of each.
func runProcess(o options, names []string) ([]outcome, error) {
	folder, err := os.MkdirTemp(o.out, "process-")
	if err != nil {
		return nil, err
	}
	if o.out == "" {
		defer os.RemoveAll(folder)
	}
	limit := o.limit * time.Duration(len(names))
	ctx, cancel := context.WithTimeout(context.Background(), limit+grace)
	defer cancel()
	command := exec.CommandContext(ctx, o.binary, arguments(o, names, folder, limit)...)
	// The discovery cache of kubectl, and what else the tests write.
	command.Env = append(os.Environ(), "HOME="+folder, "TMPDIR="+folder)
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	exit := command.Run()
	if failed := new(exec.ExitError); exit != nil && !errors.As(exit, &failed) {
		return nil, exit
	}
	return settle(names, readReports(filepath.Join(folder, "report.json")), fmt.Sprint(exit)), nil
}

func arguments(o options, names []string, folder string, limit time.Duration) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return []string{
		"--kubeconfig=" + o.kubeconfig, "--kubectl-path=" + o.kubectl, "--provider=local",
		// The nodes are fake, and there is no system Pod to wait for or whose log could be read.
		"--num-nodes=1", "--allowed-not-ready-nodes=-1", "--minStartupPods=-1", "--disable-log-dump", "--dump-logs-on-failure=false",
		"--ginkgo.no-color", "--ginkgo.v", "--ginkgo.silence-skips", "--ginkgo.seed=1", "--ginkgo.timeout=" + limit.String(),
		"--ginkgo.json-report=" + filepath.Join(folder, "report.json"),
		"--ginkgo.focus=^" + suite + "(?:" + strings.Join(quoted, "|") + ")$",
	}
}

// readReports returns nothing if the process ended before it wrote its report.
func readReports(path string) []report {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var reports []report
	if json.Unmarshal(text, &reports) != nil {
		return nil
	}
	return reports
}

// settle finds the outcome of each test in the reports.
func settle(names []string, reports []report, exit string) []outcome {
	found := map[string]outcome{}
	why := "the process wrote no report: " + exit
	for _, report := range reports {
		why = "e2e.test has no such test"
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			it := outcome{name: name, state: stateOf(spec.State, spec.Failure.Message), taken: spec.RunTime}
			if spec.Failure.Message != "" {
				it.why = fmt.Sprintf("%s (%s:%d)", firstLines(spec.Failure.Message),
					filepath.Base(spec.Failure.Location.FileName), spec.Failure.Location.LineNumber)
			}
			if spec.LeafNodeType == "It" {
				found[name] = it
			} else if it.state == failed {
				// The set-up of all tests.
				why = spec.LeafNodeType + ": " + it.why
			}
		}
	}
	outcomes := make([]outcome, len(names))
	for i, name := range names {
		it, known := found[name]
		if !known {
			it = outcome{name: name, state: notRun, why: why}
		} else if it.state == notRun {
			it.why = "not run: " + why
		}
		outcomes[i] = it
	}
	return outcomes
}

// stateOf translates a state of Ginkgo. A test that skips itself says why; one that was not selected, or not reached, does not.
func stateOf(word, message string) state {
	switch word {
	case "passed":
		return passed
	case "skipped", "pending":
		if message == "" {
			return notRun
		}
		return skipped
	default:
		return failed
	}
}
