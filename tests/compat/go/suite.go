package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

// Scenarios mostly wait (for rebalances, retention, compaction), so they run concurrently and each keeps
// to names of its own; the slow ones are started first.
const (
	atOnce     = 12
	timeoutMax = 90 * time.Second
)

type scenario struct {
	name string
	body func(*session)
	slow bool
}

type suite struct{ scenarios []scenario }

func (s *suite) add(name string, body func(*session)) {
	s.scenarios = append(s.scenarios, scenario{name: name, body: body})
}

func (s *suite) addSlow(name string, body func(*session)) {
	s.scenarios = append(s.scenarios, scenario{name: name, body: body, slow: true})
}

type outcome struct {
	name   string
	took   time.Duration
	reason string
}

// run prints the outcome of each chosen scenario and returns how many failed.
func (s *suite) run(bootstrap string, nameParts []string) int {
	var chosen []scenario
	for _, one := range s.scenarios {
		if matches(one.name, nameParts) {
			chosen = append(chosen, one)
		}
	}
	sort.SliceStable(chosen, func(i, j int) bool { return chosen[i].slow && !chosen[j].slow })
	waiting := make(chan scenario, len(chosen))
	for _, one := range chosen {
		waiting <- one
	}
	close(waiting)

	id := make([]byte, 3)
	rand.Read(id)
	outcomes := make(chan outcome)
	for range atOnce {
		go func() {
			for one := range waiting {
				outcomes <- attempt(one, bootstrap, hex.EncodeToString(id))
			}
		}()
	}
	failed := 0
	for range chosen {
		o := <-outcomes
		if o.reason == "" {
			fmt.Printf("ok %s %.1fs\n", o.name, o.took.Seconds())
		} else {
			failed++
			fmt.Printf("FAIL %s %s\n", o.name, strings.ReplaceAll(o.reason, "\n", " "))
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(chosen)-failed, failed)
	return failed
}

func matches(name string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return len(parts) == 0
}

func attempt(one scenario, bootstrap, runID string) outcome {
	start := time.Now()
	done := make(chan string, 1)
	go func() {
		session := newSession(bootstrap, one.name, runID)
		defer session.close()
		defer func() {
			reason := ""
			if thrown := recover(); thrown != nil {
				failure, ok := thrown.(failure)
				if !ok {
					panic(thrown)
				}
				reason = string(failure)
			}
			done <- reason
		}()
		one.body(session)
	}()
	reason := ""
	select {
	case reason = <-done:
	case <-time.After(timeoutMax):
		reason = fmt.Sprintf("hangs: no end after %s", timeoutMax)
	}
	return outcome{one.name, time.Since(start), reason}
}

// failure ends a scenario; it is what the checks below panic with.
type failure string

func fail(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...) + place()))
}

// place returns the scenario's line that called the check.
func place() string {
	for skip := 1; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if !ok {
			return ""
		}
		if base := filepath.Base(file); base != "suite.go" && base != "session.go" {
			return fmt.Sprintf(" (%s:%d)", base, line)
		}
	}
}

func expect[T any](actual, wanted T, what string) {
	a, w := fmt.Sprintf("%#v", actual), fmt.Sprintf("%#v", wanted)
	if a != w {
		fail("%s: wanted %s, got %s", what, brief(w), brief(a))
	}
}

func brief(text string) string {
	if len(text) <= 160 {
		return text
	}
	return fmt.Sprintf("%s... (%d characters)", text[:120], len(text))
}

func holds(condition bool, what string) {
	if !condition {
		fail("%s", what)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func eventually(limit time.Duration, what string, done func() bool) {
	end := time.Now().Add(limit)
	for !done() {
		if time.Now().After(end) {
			fail("not within %s: %s", limit, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
