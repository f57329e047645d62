// The list of tests: a mark, a tab and the full name per line. Lines that start with # are headings.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// marks are what is known of a test.
var marks = []string{"quick", "slow", "fails", "untried"}

// listed is one line of the list.
type listed struct {
	mark, name string
}

func readList(path string) ([]listed, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var tests []listed
	for number, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		mark, name, found := strings.Cut(line, "\t")
		if !found || !slices.Contains(marks, mark) {
			return nil, fmt.Errorf("%s:%d: expected a mark of %v, a tab and the name of a test", path, number+1, marks)
		}
		if seen[name] {
			return nil, fmt.Errorf("%s:%d: this test is listed twice", path, number+1)
		}
		seen[name] = true
		tests = append(tests, listed{mark, name})
	}
	return tests, nil
}
