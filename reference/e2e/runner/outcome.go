// What became of a test, and the summary of all.
package main

import (
	"fmt"
	"strings"
	"time"
)

type state string

const (
	passed  state = "passed"
	failed  state = "failed"
	skipped state = "skipped"
	notRun  state = "not run"
)

type outcome struct {
	name  string
	state state
	taken time.Duration
	// why it failed or was skipped: the first lines of the message.
	why string
}

// firstLines returns the beginning of a message, in one line.
func firstLines(message string) string {
	const most = 400
	line := strings.Join(strings.Fields(message), " ")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most]) + "..."
	}
	return line
}

// summarize prints each test and the totals, and returns whether none failed. A test that upstream skips counts as failed: the list
// has those that run.
func summarize(outcomes []outcome, taken time.Duration) bool {
	count := map[state]int{}
	for _, it := range outcomes {
		count[it.state]++
		fmt.Printf("%s\t%.1f\t%s\n", it.state, it.taken.Seconds(), it.name)
		if it.why != "" {
			fmt.Printf("\t%s\n", it.why)
		}
	}
	fmt.Printf("e2e: %d passed, %d failed, %d skipped, %d not run, in %.0f s\n",
		count[passed], count[failed], count[skipped], count[notRun], taken.Seconds())
	return count[passed] == len(outcomes)
}
