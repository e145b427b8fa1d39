package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/redis/rueidis"
)

type redisLoad struct {
	client rueidis.Client
	body   string
	sent   int
}

func connectRedis(address string, body []byte) (load, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, DisableCache: true,
		// A request of 960 messages is a megabyte; the default buffer of answers suffices.
		WriteBufferEachConn: 1 << 20, ReadBufferEachConn: 1 << 20,
	})
	return &redisLoad{client: client, body: string(body)}, err
}

func (l *redisLoad) add(stream, body string) rueidis.Completed {
	return l.client.B().Xadd().Key(stream).Id("*").FieldValue().FieldValue("body", body).Build()
}

func (l *redisLoad) run(asked part) (done answer, err error) {
	ctx := context.Background()
	switch asked.Way {
	case "single": // the client puts commands of several goroutines into one packet
		done, err = closedLoop(asked, asked.InFlight, 1, func() error {
			return l.client.Do(ctx, l.add("bench", l.body)).Error()
		})
	case "batched":
		done, err = closedLoop(asked, asked.InFlight, asked.Batch, func() error {
			commands := make(rueidis.Commands, asked.Batch)
			for i := range commands {
				commands[i] = l.add("bench", l.body)
			}
			for _, result := range l.client.DoMulti(ctx, commands...) {
				if err := result.Error(); err != nil {
					return err
				}
			}
			return nil
		})
	case "steady":
		return l.steady(ctx, asked)
	default:
		return l.read(ctx, asked)
	}
	l.sent += done.Sent
	return done, err
}

func (l *redisLoad) next(ctx context.Context, stream, after string, block bool) ([]rueidis.XRangeEntry, error) {
	ask := l.client.B().Xread().Count(1000)
	var command rueidis.Completed
	if block {
		command = ask.Block(10_000).Streams().Key(stream).Id(after).Build()
	} else {
		command = ask.Streams().Key(stream).Id(after).Build()
	}
	entries, err := l.client.Do(ctx, command).AsXRead()
	return entries[stream], err
}

func (l *redisLoad) steady(ctx context.Context, asked part) (answer, error) {
	arrivals := make(chan arrival, 1<<20)
	failed := make(chan error, 1)
	go func() {
		for last := "0"; ; {
			entries, err := l.next(ctx, "steady", last, true)
			if err != nil {
				failed <- err
				return
			}
			came := time.Now()
			for _, entry := range entries {
				sent := int64(binary.BigEndian.Uint64([]byte(entry.FieldValues["body"])))
				arrivals <- arrival{time.Unix(0, sent), came}
				last = entry.ID
			}
		}
	}()
	body := make([]byte, len(l.body))
	m, err := steadily(asked, func(planned time.Time) error {
		binary.BigEndian.PutUint64(body, uint64(planned.UnixNano()))
		command := l.add("steady", string(body))
		go l.client.Do(ctx, command)
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	err = m.take(arrivals, failed)
	return m.answer(), err
}

func (l *redisLoad) read(ctx context.Context, asked part) (answer, error) {
	began, seen := time.Now(), 0
	for last := "0"; seen < l.sent && time.Since(began).Seconds() < asked.Seconds; {
		entries, err := l.next(ctx, "bench", last, false)
		if err != nil {
			return answer{}, err
		}
		seen += len(entries)
		last = entries[len(entries)-1].ID
	}
	return answer{Messages: seen, Sent: seen, ElapsedS: time.Since(began).Seconds()}, nil
}
