package shop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rocketlet is a broker for tests: a process of its own, which is driven by its control port.
type rocketlet struct {
	nameserver string
	control    string
	process    *exec.Cmd
}

// startRocketlet starts the program that the environment variable ROCKETLET names, or rocketlet.
func startRocketlet() (*rocketlet, error) {
	program := os.Getenv("ROCKETLET")
	if program == "" {
		program = "rocketlet"
	}
	process := exec.Command(program, "up", "--ephemeral",
		"--namesrv-port", "0", "--broker-port", "0", "--control-port", "0")
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("there is no broker, pip install 'rocketlet[control]': %w", err)
	}
	ready, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s has ended before it was ready: %w", program, process.Wait())
	}
	broker := &rocketlet{process: process}
	for _, word := range strings.Fields(ready) { // ready namesrv=… broker=… control=…
		switch name, value, _ := strings.Cut(word, "="); name {
		case "namesrv":
			broker.nameserver = value
		case "control":
			broker.control = value
		}
	}
	return broker, nil
}

func (r *rocketlet) stop() {
	_ = r.process.Process.Signal(syscall.SIGTERM)
	_ = r.process.Wait()
}

// controls is a broker during one test, which fails if a request is refused.
type controls struct {
	*rocketlet
	t *testing.T
}

// begin begins a test, which ends by itself: with it what it has injected, which must have happened.
func (r *rocketlet) begin(t *testing.T) controls {
	broker := controls{r, t}
	broker.post("/test", fields{"name": t.Name()}, nil)
	t.Cleanup(func() { broker.call(http.MethodDelete, "/test", nil, nil) })
	return broker
}

type named struct {
	Name string `json:"name"`
}

type stored struct {
	Body string   `json:"body"`
	Tags string   `json:"tags"`
	Keys []string `json:"keys"`
}

type transaction struct {
	Message    stored `json:"message"`
	CheckCount int    `json:"check_count"`
}

func (c controls) topic() string {
	var made named
	c.post("/topics", fields{}, &made)
	return made.Name
}

func (c controls) group() string {
	var made named
	c.post("/groups", fields{}, &made)
	return made.Name
}

// assertSent fails unless a topic has exactly so many messages with this tag and key.
func (c controls) assertSent(topic, tag, key string, times int) {
	c.t.Helper()
	c.post("/expect", fields{"topic": topic, "tags": tag, "keys": []string{key}, "times": times}, nil)
}

func (c controls) waitFor(topic, tag string) (messages []stored) {
	c.t.Helper()
	c.post("/wait/messages", fields{"topic": topic, "tag": tag}, &messages)
	return messages
}

func (c controls) waitConsumed(group string) {
	c.t.Helper()
	c.post("/wait/consumed", fields{"group": group}, nil)
}

func (c controls) lag(group string) int {
	var lag struct {
		Total int `json:"total"`
	}
	c.get("/lag", url.Values{"group": {group}}, &lag)
	return lag.Total
}

func (c controls) deadLetters(group string) (messages []stored) {
	c.get("/dead-letters", url.Values{"group": {group}}, &messages)
	return messages
}

func (c controls) transactions() (open []transaction) {
	c.get("/transactions", nil, &open)
	return open
}

// countRequests returns how often clients have asked for an operation in the name of a group since the test began.
func (c controls) countRequests(on, group string) int {
	var seen struct {
		Requests []json.RawMessage `json:"requests"`
	}
	c.get("/requests", url.Values{"on": {on}, "group": {group}}, &seen)
	return len(seen.Requests)
}

func (c controls) freeze() {
	c.post("/clock/freeze", fields{}, nil)
}

func (c controls) advance(span time.Duration) {
	c.t.Helper()
	c.post("/clock/advance", fields{"milliseconds": span.Milliseconds()}, nil)
}

// addFault lets something go wrong, and returns the number of the fault.
func (c controls) addFault(rule fields) int {
	var fault struct {
		ID int `json:"id"`
	}
	c.t.Helper()
	c.post("/faults", rule, &fault)
	return fault.ID
}

func (c controls) waitForFault(id int) {
	c.t.Helper()
	c.post(fmt.Sprintf("/faults/%d/wait", id), fields{}, nil)
}

// --- HTTP

type fields map[string]any

func (c controls) get(path string, query url.Values, answer any) {
	c.t.Helper()
	c.call(http.MethodGet, path+"?"+query.Encode(), nil, answer)
}

func (c controls) post(path string, body fields, answer any) {
	c.t.Helper()
	c.call(http.MethodPost, path, body, answer)
}

func (c controls) call(method, path string, body fields, answer any) {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	var sent io.Reader // of a request that says nothing there is none
	if body != nil {
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, c.control+path, sent)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	if response.StatusCode >= http.StatusBadRequest {
		var refused struct {
			Error string `json:"error"`
		}
		_ = decoder.Decode(&refused)
		c.t.Fatalf("%s %s: %s", method, path, refused.Error)
	}
	if answer != nil {
		if err := decoder.Decode(answer); err != nil {
			c.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
}
