// Loads for the peers of `aerobee bench peers`, with their own Go clients:
//
//	load nats|redis|grpc ADDRESS BODY_BYTES      a load, see below
//	load grpc-server                             grpc-go's server with an echo; prints its port
//
// A load reads one part a line from standard input, as JSON, and answers each with one line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

type part struct {
	Way      string  `json:"way"`       // single, batched, steady, read
	InFlight int     `json:"in_flight"` // of single: messages, of batched: requests
	Batch    int     `json:"batch"`     // messages of a request
	Rate     int     `json:"rate"`      // of steady: messages a second
	Seconds  float64 `json:"seconds"`
}

type answer struct {
	Messages int     `json:"messages"` // while it was measured
	ElapsedS float64 `json:"elapsed_s"`
	Sent     int     `json:"sent"` // and before that, to warm up
	P50Us    float64 `json:"p50_us"`
	P99Us    float64 `json:"p99_us"`
}

type load interface {
	run(part) (answer, error)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "grpc-server" {
		check(serveGRPC())
		return
	}
	bodyBytes, err := strconv.Atoi(os.Args[3])
	check(err)
	body := make([]byte, bodyBytes)
	for i := range body {
		body[i] = byte(i)
	}
	connect := map[string]func(string, []byte) (load, error){
		"nats": connectNATS, "redis": connectRedis, "grpc": connectGRPC,
	}[os.Args[1]]
	client, err := connect(os.Args[2], body)
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked part
		check(json.Unmarshal(lines.Bytes(), &asked))
		done, err := client.run(asked)
		check(err)
		check(json.NewEncoder(os.Stdout).Encode(done))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// meter counts what is acknowledged once the warm-up is over.
type meter struct {
	start, end time.Time
	sent       int
	messages   int
	took       []time.Duration
}

func newMeter(asked part) meter {
	seconds := time.Duration(asked.Seconds * float64(time.Second))
	start := time.Now().Add(seconds / 3)
	return meter{start: start, end: start.Add(seconds)}
}

func (m *meter) acknowledged(began, now time.Time, messages int) {
	m.sent += messages
	if now.Before(m.start) || now.After(m.end) {
		return
	}
	m.messages += messages
	m.took = append(m.took, now.Sub(began))
}

func (m *meter) answer() answer {
	return answer{
		Messages: m.messages, ElapsedS: m.end.Sub(m.start).Seconds(), Sent: m.sent,
		P50Us: rank(m.took, 0.5), P99Us: rank(m.took, 0.99),
	}
}

// rank is the nearest-rank percentile, in microseconds.
func rank(took []time.Duration, share float64) float64 {
	if len(took) == 0 {
		return 0
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	return float64(took[min(len(took)-1, int(share*float64(len(took))))].Nanoseconds()) / 1e3
}

// closedLoop has `workers` send one request after the other, each of `messages` messages.
func closedLoop(asked part, workers, messages int, send func() error) (answer, error) {
	meters := make([]meter, workers)
	failed := make([]error, workers)
	whole := newMeter(asked)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			meters[i] = meter{start: whole.start, end: whole.end}
			for began := time.Now(); began.Before(whole.end); {
				if failed[i] = send(); failed[i] != nil {
					return
				}
				now := time.Now()
				meters[i].acknowledged(began, now, messages)
				began = now
			}
		})
	}
	running.Wait()
	for i := range meters {
		if failed[i] != nil {
			return answer{}, failed[i]
		}
		whole.sent += meters[i].sent
		whole.messages += meters[i].messages
		whole.took = append(whole.took, meters[i].took...)
	}
	return whole.answer(), nil
}

// steadily calls send at a steady rate with the planned time of each message, which a sender that
// falls behind cannot hide.
func steadily(asked part, send func(planned time.Time) error) (meter, error) {
	m := newMeter(asked)
	began := time.Now()
	for number := 0; ; number++ {
		planned := began.Add(time.Duration(number) * time.Second / time.Duration(asked.Rate))
		if planned.After(m.end) {
			return m, nil
		}
		time.Sleep(time.Until(planned))
		if err := send(planned); err != nil {
			return m, err
		}
		m.sent++
	}
}

// arrival is a message that a reader got: when it was planned, and when it came.
type arrival struct{ sent, came time.Time }

// take waits for every message that was sent, and measures those sent after the warm-up. It
// returns the error of a reader that failed.
func (m *meter) take(arrivals <-chan arrival, failed <-chan error) error {
	for range m.sent {
		select {
		case one := <-arrivals:
			if one.sent.After(m.start) {
				m.messages++
				m.took = append(m.took, one.came.Sub(one.sent))
			}
		case err := <-failed:
			return err
		case <-time.After(10 * time.Second):
			return fmt.Errorf("a message is missing")
		}
	}
	return nil
}
