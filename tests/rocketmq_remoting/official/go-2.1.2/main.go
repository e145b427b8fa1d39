// Apache's remoting client for Go, told what to do line by line: see programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type asked struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Key        string            `json:"key"`
	Group      string            `json:"group"`
	How        string            `json:"how"`
	End        string            `json:"end"`
	DelayLevel int               `json:"delay_level"`
	Properties map[string]string `json:"properties"`
	Messages   []asked           `json:"messages"`
}

type line map[string]any

var saying sync.Mutex

func say(told line) {
	saying.Lock()
	defer saying.Unlock()
	text, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("error")
	role, rest := os.Args[1], os.Args[2:]
	if role == "producer" {
		produce(rest[0])
	} else {
		consume(role, rest[0], rest[1], rest[2:])
	}
	say(line{"stopped": true})
}

func serve(does func(asked) (line, error)) {
	say(line{"started": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var wish asked
		must(json.Unmarshal(lines.Bytes(), &wish))
		if wish.Do == "stop" {
			return
		}
		answer, err := does(wish)
		if err != nil {
			answer = line{"error": err.Error()}
		}
		say(answer)
	}
}

// ---------------------------------------------------------------------------------- producer

type decisions struct {
	ends sync.Map
}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (made *decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	end, _ := made.ends.Load(string(message.Body))
	return state(end.(string))
}

func (made *decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return state(message.GetProperty("answer"))
}

// A queue by the hash of the message's group, and any if it has none.
type byGroup struct {
	turn producer.QueueSelector
}

func (chosen byGroup) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string,
) *primitive.MessageQueue {
	group := message.GetShardingKey()
	if group == "" {
		return chosen.turn.Select(message, queues, lastBroker)
	}
	hash := fnv.New32a()
	hash.Write([]byte(group))
	return queues[int(hash.Sum32())%len(queues)]
}

func produce(address string) {
	ctx := context.Background()
	options := []producer.Option{
		producer.WithNameServer([]string{address}),
		producer.WithQueueSelector(byGroup{producer.NewRoundRobinQueueSelector()}),
		producer.WithSendMsgTimeout(10 * time.Second),
	}
	plain, err := rocketmq.NewProducer(append(options, producer.WithGroupName("producers"))...)
	must(err)
	must(plain.Start())
	owner := &decisions{}
	transactions, err := rocketmq.NewTransactionProducer(owner,
		append(options, producer.WithGroupName("owners"), producer.WithInstanceName("owner"))...)
	must(err)
	must(transactions.Start())
	serve(func(wish asked) (line, error) {
		var messages []*primitive.Message
		for _, each := range wish.Messages {
			messages = append(messages, message(wish.Topic, each))
		}
		if messages == nil {
			messages = append(messages, message(wish.Topic, wish))
		}
		switch {
		case wish.End != "":
			owner.ends.Store(wish.Body, wish.End)
			result, err := transactions.SendMessageInTransaction(ctx, messages[0])
			if err != nil {
				return nil, err
			}
			return answer(result.SendResult), nil
		case wish.How == "oneway":
			return line{"status": "ONEWAY"}, plain.SendOneWay(ctx, messages...)
		case wish.How == "async":
			sent := make(chan line, 1)
			err := plain.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					sent <- line{"error": err.Error()}
				} else {
					sent <- answer(result)
				}
			}, messages...)
			if err != nil {
				return nil, err
			}
			return <-sent, nil
		}
		result, err := plain.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		return answer(result), nil
	})
	must(errors.Join(plain.Shutdown(), transactions.Shutdown()))
}

func message(topic string, wish asked) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(wish.Body))
	for name, value := range wish.Properties {
		made.WithProperty(name, value)
	}
	if wish.Tag != "" {
		made.WithTag(wish.Tag)
	}
	if wish.Key != "" {
		made.WithKeys(strings.Fields(wish.Key))
	}
	if wish.Group != "" {
		made.WithShardingKey(wish.Group)
	}
	if wish.DelayLevel != 0 {
		made.WithDelayTimeLevel(wish.DelayLevel)
	}
	return made
}

func answer(result *primitive.SendResult) line {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprint("status ", result.Status)
	}
	return line{
		"status":    status,
		"id":        result.MsgID,
		"offset_id": result.OffsetMsgID,
		"queue":     result.MessageQueue.QueueId,
	}
}

// ---------------------------------------------------------------------------------- consumers

func consume(role string, address string, group string, topics []string) {
	options := []consumer.Option{
		consumer.WithNameServer([]string{address}),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(role == "orderly"),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
	if role == "orderly" {
		options = append(options, consumer.WithMaxReconsumeTimes(3))
	}
	if role == "broadcast" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	push, err := rocketmq.NewPushConsumer(options...)
	must(err)
	failed := map[string]int{}
	var guard sync.Mutex
	handles := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if wished, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			wished.DelayLevelWhenNextConsume = 1
		}
		for _, each := range messages {
			say(line{"message": told(each)})
			fails, _ := strconv.Atoi(each.GetProperty("fails"))
			guard.Lock()
			failed[string(each.Body)]++
			isHandled := failed[string(each.Body)] > fails
			guard.Unlock()
			if !isHandled {
				if role == "orderly" {
					return consumer.SuspendCurrentQueueAMoment, nil
				}
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	for _, wanted := range topics {
		topic, expression, isNarrow := strings.Cut(wanted, "=")
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
		if isNarrow {
			selector.Expression = expression
		}
		if sql, ok := strings.CutPrefix(expression, "sql:"); ok {
			selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
		}
		must(push.Subscribe(topic, selector, handles))
	}
	must(push.Start())
	serve(func(asked) (line, error) { return nil, errors.New("a push consumer is only told to stop") })
	must(push.Shutdown())
}

func told(message *primitive.MessageExt) line {
	return line{
		"id":         message.MsgId,
		"topic":      message.Topic,
		"body":       string(message.Body),
		"tag":        message.GetTags(),
		"keys":       message.GetKeys(),
		"properties": message.GetProperties(),
		"attempt":    message.ReconsumeTimes + 1,
		"queue":      message.Queue.QueueId,
	}
}
