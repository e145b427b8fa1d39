package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type natsLoad struct {
	js   jetstream.JetStream
	body []byte
	sent int
}

func connectNATS(address string, body []byte) (load, error) {
	connection, err := nats.Connect("nats://" + address)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(1<<20))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"bench", "steady"} {
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
		if _, err := js.CreateStream(context.Background(), config); err != nil {
			return nil, err
		}
	}
	return &natsLoad{js: js, body: body}, nil
}

func (l *natsLoad) run(asked part) (answer, error) {
	switch asked.Way {
	case "single", "batched":
		done, err := l.publish(asked, asked.InFlight*asked.Batch)
		l.sent += done.Sent
		return done, err
	case "steady":
		return l.steady(asked)
	default:
		return l.read(asked)
	}
}

type published struct {
	began time.Time
	ack   jetstream.PubAckFuture
}

// publish keeps `inFlight` messages without an answer; the client puts them into packets.
func (l *natsLoad) publish(asked part, inFlight int) (answer, error) {
	m := newMeter(asked)
	pending := make(chan published, inFlight)
	oldest := func() error {
		first := <-pending
		select {
		case <-first.ack.Ok():
			m.acknowledged(first.began, time.Now(), 1)
			return nil
		case err := <-first.ack.Err():
			return err
		}
	}
	for now := time.Now(); now.Before(m.end); now = time.Now() {
		if len(pending) == inFlight {
			if err := oldest(); err != nil {
				return answer{}, err
			}
			now = time.Now()
		}
		ack, err := l.js.PublishAsync("bench", l.body)
		if err != nil {
			return answer{}, err
		}
		pending <- published{now, ack}
	}
	for len(pending) > 0 {
		if err := oldest(); err != nil {
			return answer{}, err
		}
	}
	return m.answer(), nil
}

func (l *natsLoad) steady(asked part) (answer, error) {
	arrivals := make(chan arrival, 1<<20)
	consumer, err := l.js.OrderedConsumer(context.Background(), "steady", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return answer{}, err
	}
	consuming, err := consumer.Consume(func(message jetstream.Msg) {
		sent := int64(binary.BigEndian.Uint64(message.Data()))
		arrivals <- arrival{time.Unix(0, sent), time.Now()}
	})
	if err != nil {
		return answer{}, err
	}
	defer consuming.Stop()
	m, err := steadily(asked, func(planned time.Time) error {
		body := make([]byte, len(l.body))
		binary.BigEndian.PutUint64(body, uint64(planned.UnixNano()))
		_, err := l.js.PublishAsync("steady", body)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	err = m.take(arrivals, nil)
	return m.answer(), err
}

// read stops after the time of the part or the last message, and counts from the first one on.
func (l *natsLoad) read(asked part) (answer, error) {
	consumer, err := l.js.OrderedConsumer(context.Background(), "bench", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return answer{}, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(10_000))
	if err != nil {
		return answer{}, err
	}
	defer messages.Stop()
	seen, began := 0, time.Time{}
	for limit := time.Duration(asked.Seconds * float64(time.Second)); seen < l.sent; seen++ {
		if _, err := messages.Next(); err != nil {
			return answer{}, err
		}
		if seen == 0 {
			began = time.Now()
		} else if seen%1024 == 0 && time.Since(began) > limit {
			break
		}
	}
	return answer{Messages: seen, Sent: seen, ElapsedS: time.Since(began).Seconds()}, nil
}
