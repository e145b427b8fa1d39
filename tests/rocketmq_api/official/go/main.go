// Apache's client for Go, told what to do line by line; programs.py says in which words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// Longer than the longest message.
const lineBytesMax = 16 << 20

// asked is a line of a test; most of its fields are absent.
type asked struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      *string           `json:"group"`
	DelayS     *int              `json:"delay_s"`
	Priority   *int32            `json:"priority"`
	Handle     string            `json:"handle"`
}

type answer map[string]any

var writing sync.Mutex

func say(one answer) {
	writing.Lock()
	defer writing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(one); err != nil {
		panic(err)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func sent(producer rocketmq.Producer, one *asked) (answer, error) {
	message := &rocketmq.Message{Topic: one.Topic, Body: []byte(one.Body), Tag: one.Tag}
	if one.Keys != nil {
		message.SetKeys(one.Keys...)
	}
	for name, value := range one.Properties {
		message.AddProperty(name, value)
	}
	if one.Group != nil {
		message.SetMessageGroup(*one.Group)
	}
	if one.DelayS != nil {
		message.SetDelayTimestamp(time.Now().Add(time.Duration(*one.DelayS) * time.Second))
	}
	if one.Priority != nil {
		if err := message.SetPriority(*one.Priority); err != nil {
			return nil, err
		}
	}
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	receipt := receipts[0]
	return answer{
		"id":          receipt.MessageID,
		"transaction": receipt.TransactionId,
		"handle":      receipt.RecallHandle,
	}, nil
}

// obey answers line by line until it is told to stop.
func obey(role func(*asked) (answer, error)) {
	say(answer{"started": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var one asked
		must(json.Unmarshal(lines.Bytes(), &one))
		if one.Do == "stop" {
			return
		}
		said, err := role(&one)
		if err != nil {
			said = answer{"error": err.Error()}
		}
		say(said)
	}
	must(lines.Err())
}

func produce(config *rocketmq.Config, topics []string) {
	producer, err := rocketmq.NewProducer(config, rocketmq.WithTopics(topics...))
	must(err)
	must(producer.Start())
	obey(func(one *asked) (answer, error) {
		if one.Do == "send" {
			return sent(producer, one)
		}
		id, err := producer.Recall(context.Background(), one.Topic, one.Handle)
		return answer{"id": id}, err
	})
	must(producer.GracefulStop())
}

func main() {
	rocketmq.EnableSsl = false
	config := &rocketmq.Config{
		Endpoint:    os.Args[2],
		Credentials: &credentials.SessionCredentials{},
	}
	produce(config, os.Args[3:])
	say(answer{"stopped": true})
}
