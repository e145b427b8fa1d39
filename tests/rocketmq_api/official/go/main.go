// Apache's client for Go, told what to do line by line; programs.py says in which words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	awaiting = 5 * time.Second
	// Longer than the longest message.
	lineBytesMax = 16 << 20
)

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
	End        *string           `json:"end"`
	Handle     string            `json:"handle"`
	Max        int32             `json:"max"`
	InvisibleS int               `json:"invisible_s"`
	ID         string            `json:"id"`
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

type startable interface{ Start() error }

// started tries again where the client writes its settings while it sends them, as now and then it
// does: an error of its own, which fails its start.
func started[T startable](build func() (T, error)) T {
	for {
		client, err := build()
		must(err)
		err = client.Start()
		if err == nil {
			return client
		}
		if !strings.Contains(err.Error(), "size mismatch") {
			say(answer{"error": err.Error()})
			os.Exit(1)
		}
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
	receipts, err := ended(producer, message, one.End)
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

// ended sends in a transaction if there is an end for it.
func ended(
	producer rocketmq.Producer, message *rocketmq.Message, end *string,
) ([]*rocketmq.SendReceipt, error) {
	if end == nil {
		return producer.Send(context.Background(), message)
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	switch {
	case err != nil:
	case *end == "commit":
		err = transaction.Commit()
	case *end == "rollback":
		err = transaction.RollBack()
	}
	return receipts, err
}

func check(message *rocketmq.MessageView) rocketmq.TransactionResolution {
	resolutions := map[string]rocketmq.TransactionResolution{
		"commit":   rocketmq.COMMIT,
		"rollback": rocketmq.ROLLBACK,
	}
	return resolutions[message.GetProperties()["answer"]] // others are unknown, which is 0
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
	producer := started(func() (rocketmq.Producer, error) {
		return rocketmq.NewProducer(
			config,
			rocketmq.WithTopics(topics...),
			rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: check}),
		)
	})
	obey(func(one *asked) (answer, error) {
		if one.Do == "send" {
			return sent(producer, one)
		}
		id, err := producer.Recall(context.Background(), one.Topic, one.Handle)
		return answer{"id": id}, err
	})
	must(producer.GracefulStop())
}

func seen(message *rocketmq.MessageView) answer {
	return answer{
		"id":         message.GetMessageId(),
		"topic":      message.GetTopic(),
		"body":       string(message.GetBody()),
		"tag":        message.GetTag(),
		"keys":       message.GetKeys(),
		"properties": message.GetProperties(),
		"group":      message.GetMessageGroup(),
		"attempt":    message.GetDeliveryAttempt(),
	}
}

func subscription(topics []string) map[string]*rocketmq.FilterExpression {
	expressions := make(map[string]*rocketmq.FilterExpression)
	for _, one := range topics {
		topic, tags, found := strings.Cut(one, "=")
		if !found {
			tags = "*"
		}
		if condition, isSql := strings.CutPrefix(tags, "sql:"); isSql {
			expressions[topic] = rocketmq.NewFilterExpressionWithType(condition, rocketmq.SQL92)
		} else {
			expressions[topic] = rocketmq.NewFilterExpression(tags)
		}
	}
	return expressions
}

func receive(config *rocketmq.Config, topics []string) {
	consumer := started(func() (rocketmq.SimpleConsumer, error) {
		return rocketmq.NewSimpleConsumer(
			config,
			rocketmq.WithSimpleAwaitDuration(awaiting),
			rocketmq.WithSimpleSubscriptionExpressions(subscription(topics)),
		)
	})
	held := make(map[string]*rocketmq.MessageView)
	obey(func(one *asked) (answer, error) {
		invisible := time.Duration(one.InvisibleS) * time.Second
		switch one.Do {
		case "receive":
			messages, err := consumer.Receive(context.Background(), one.Max, invisible)
			status, isStatus := rocketmq.AsErrRpcStatus(err)
			if isStatus && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
				err = nil // how this client says that none came
			}
			found := make([]answer, len(messages))
			for at, message := range messages {
				held[message.GetMessageId()] = message
				found[at] = seen(message)
			}
			return answer{"messages": found}, err
		case "ack":
			return answer{"id": one.ID}, consumer.Ack(context.Background(), held[one.ID])
		default:
			return answer{"id": one.ID}, consumer.ChangeInvisibleDuration(held[one.ID], invisible)
		}
	})
	must(consumer.GracefulStop())
}

func listen(config *rocketmq.Config, topics []string) {
	var counting sync.Mutex
	calls := make(map[string]int)
	consume := func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		counting.Lock()
		calls[message.GetMessageId()]++
		call := calls[message.GetMessageId()]
		counting.Unlock()
		say(answer{"message": seen(message)})
		// Absent properties are 0.
		seconds, _ := strconv.Atoi(message.GetProperties()["takes_s"])
		time.Sleep(time.Duration(seconds) * time.Second)
		if fails, _ := strconv.Atoi(message.GetProperties()["fails"]); call <= fails {
			return rocketmq.FAILURE
		}
		return rocketmq.SUCCESS
	}
	consumer := started(func() (rocketmq.PushConsumer, error) {
		return rocketmq.NewPushConsumer(
			config,
			rocketmq.WithPushSubscriptionExpressions(subscription(topics)),
			rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: consume}),
		)
	})
	obey(func(*asked) (answer, error) { return answer{}, nil })
	must(consumer.GracefulStop())
}

func main() {
	rocketmq.EnableSsl = os.Getenv("OFFICIAL_TLS") != ""
	config := &rocketmq.Config{
		Endpoint: os.Args[2],
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("TEST_ACCESS_KEY"),
			AccessSecret: os.Getenv("TEST_SECRET_KEY"),
		},
	}
	switch role, rest := os.Args[1], os.Args[3:]; role {
	case "producer":
		produce(config, rest)
	case "simple":
		config.ConsumerGroup = rest[0]
		receive(config, rest[1:])
	case "push":
		config.ConsumerGroup = rest[0]
		listen(config, rest[1:])
	}
	say(answer{"stopped": true})
}
