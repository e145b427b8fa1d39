package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	service = "/test.Echo/"
	mib     = 1 << 20
)

type client struct{ connection *grpc.ClientConn }

func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func (c client) call(name string, request []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := patience()
	defer cancel()
	var answer []byte
	err := c.connection.Invoke(ctx, service+name, &request, &answer, options...)
	return answer, err
}

func (c client) stream(ctx context.Context, name string) (grpc.ClientStream, error) {
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	return c.connection.NewStream(ctx, both, service+name)
}

// answers begins a call that streams answers.
func (c client) answers(ctx context.Context, name, request string) (grpc.ClientStream, error) {
	one := &grpc.StreamDesc{ServerStreams: true}
	stream, err := c.connection.NewStream(ctx, one, service+name)
	if err != nil {
		return nil, err
	}
	raw := []byte(request)
	if err := stream.SendMsg(&raw); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}

func expect(is bool, what string, values ...any) error {
	if is {
		return nil
	}
	return fmt.Errorf(what, values...)
}

func (c client) sizes() error {
	for _, name := range []string{"Echo", "Later", "Task"} {
		for _, size := range []int{0, 1, 16_379, 16_380, 70_000, 5 * mib} {
			request := bytes.Repeat([]byte("x"), size)
			answer, err := c.call(name, request)
			if err != nil {
				return err
			}
			if !bytes.Equal(answer, request) {
				return fmt.Errorf("%s: %d bytes came back as %d", name, size, len(answer))
			}
		}
	}
	return nil
}

// together runs so many at once; the first error.
func together(count int, one func(number int) error) error {
	failures := make(chan error, count)
	var all sync.WaitGroup
	for number := range count {
		all.Go(func() {
			if err := one(number); err != nil {
				failures <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func (c client) largeAnswers() error {
	return together(8, func(int) error {
		answer, err := c.call("Large", []byte("3000000"))
		if err != nil {
			return err
		}
		return expect(len(answer) == 3_000_000, "%d bytes", len(answer))
	})
}

func (c client) manyCalls() error {
	return together(5_000, func(number int) error {
		request := strconv.Itoa(number)
		answer, err := c.call("Task", []byte(request))
		if err != nil {
			return err
		}
		return expect(string(answer) == request, "%s came back as %s", request, answer)
	})
}

// manyStreams has 2,000 streams open at once.
func (c client) manyStreams() error {
	ctx, cancel := patience()
	defer cancel()
	var open sync.WaitGroup
	open.Add(2_000)
	return together(2_000, func(number int) error {
		stream, err := c.stream(ctx, "Chat")
		if err == nil {
			err = turn(stream, strconv.Itoa(number))
		}
		open.Done()
		if err != nil {
			return err
		}
		open.Wait()
		if err := turn(stream, "again"); err != nil {
			return err
		}
		return ended(stream)
	})
}

func turn(stream grpc.ClientStream, text string) error {
	request := []byte(text)
	if err := stream.SendMsg(&request); err != nil {
		return err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		return err
	}
	return expect(string(answer) == text, "%s came back as %s", text, answer)
}

func ended(stream grpc.ClientStream) error {
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	err := stream.RecvMsg(&answer)
	return expect(err == io.EOF, "ended by %v", err)
}

func (c client) countsOf(request string, count, size int, pauseAfter int) error {
	ctx, cancel := patience()
	defer cancel()
	stream, err := c.answers(ctx, "Count", request)
	if err != nil {
		return err
	}
	for number := range count {
		if number == pauseAfter {
			time.Sleep(300 * time.Millisecond)
			if _, err := c.call("Echo", []byte("meanwhile")); err != nil {
				return err
			}
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
		prefix := strconv.Itoa(number)
		whole := prefix + string(bytes.Repeat([]byte("x"), size))
		if string(answer) != whole {
			return fmt.Errorf("answer %d has %d bytes", number, len(answer))
		}
	}
	var more []byte
	err = stream.RecvMsg(&more)
	return expect(err == io.EOF, "ended by %v", err)
}

func (c client) streamOfAnswers() error {
	if err := c.countsOf("0", 0, 0, -1); err != nil {
		return err
	}
	return c.countsOf("1000,500", 1_000, 500, -1)
}

func (c client) slowReader() error { return c.countsOf("400,20000", 400, 20_000, 1) }

func (c client) streamOfRequests() error {
	ctx, cancel := patience()
	defer cancel()
	requests := &grpc.StreamDesc{ClientStreams: true}
	stream, err := c.connection.NewStream(ctx, requests, service+"Sum")
	if err != nil {
		return err
	}
	for size := range 300 {
		request := make([]byte, size)
		if err := stream.SendMsg(&request); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil {
		return err
	}
	return expect(string(answer) == "44850", "the sum is %s", answer)
}

func (c client) bothStream() error {
	ctx, cancel := patience()
	defer cancel()
	stream, err := c.stream(ctx, "Chat")
	if err != nil {
		return err
	}
	for number := range 200 {
		if err := turn(stream, strconv.Itoa(number)); err != nil {
			return err
		}
	}
	return ended(stream)
}

func (c client) gzip() error {
	for _, size := range []int{10, 100_000} {
		request := bytes.Repeat([]byte("x"), size)
		answer, err := c.call("Squeezed", request, grpc.UseCompressor("gzip"))
		if err != nil {
			return err
		}
		if !bytes.Equal(answer, request) {
			return fmt.Errorf("%d bytes came back as %d", size, len(answer))
		}
	}
	return nil
}

func (c client) errors() error {
	var trailers metadata.MD
	_, err := c.call("Fail", nil, grpc.Trailer(&trailers))
	told := status.Convert(err)
	if told.Code() != codes.FailedPrecondition || told.Message() != "nicht möglich: 100 %\n" {
		return fmt.Errorf("it says %v", err)
	}
	details := told.Details()
	if len(details) != 1 {
		return fmt.Errorf("%d details", len(details))
	}
	info, is := details[0].(*errdetails.ErrorInfo)
	if !is || info.Reason != "BROKEN" {
		return fmt.Errorf("the details are %v", details[0])
	}
	is = trailers.Get("reason")[0] == "broken" && trailers.Get("reason-bin")[0] == "\x00\xff"
	return expect(is, "the trailers are %v", trailers)
}

func (c client) metadataBothWays() error {
	ctx, cancel := patience()
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(
		ctx, "key", "a value, with a comma", "key", "once more", "raw-bin", "\x00\x01\xff",
	)
	var head, trailers metadata.MD
	var request, answer []byte
	err := c.connection.Invoke(
		ctx, service+"Metadata", &request, &answer, grpc.Header(&head), grpc.Trailer(&trailers),
	)
	if err != nil {
		return err
	}
	for _, given := range []metadata.MD{head, trailers} {
		keys := given.Get("key")
		is := len(keys) == 2 && keys[0] == "a value, with a comma" && keys[1] == "once more"
		if !is || given.Get("raw-bin")[0] != "\x00\x01\xff" {
			return fmt.Errorf("got %v", given)
		}
	}
	return expect(trailers.Get("count-bin")[0] == "\x03", "got %v", trailers)
}

func (c client) unimplemented() error {
	_, err := c.call("Nothing", nil)
	return expect(status.Code(err) == codes.Unimplemented, "it says %v", err)
}

func (c client) deadline() error {
	for _, name := range []string{"Sleep", "Never"} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		var request, answer []byte
		err := c.connection.Invoke(ctx, service+name, &request, &answer)
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			return fmt.Errorf("%s: it says %v", name, err)
		}
	}
	return nil
}

func (c client) cancel() error {
	ctx, cancel := patience()
	stream, err := c.answers(ctx, "Forever", "")
	if err != nil {
		cancel()
		return err
	}
	for range 10 {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			cancel()
			return err
		}
	}
	cancel()
	for err == nil {
		var answer []byte
		err = stream.RecvMsg(&answer)
	}
	if status.Code(err) != codes.Canceled {
		return fmt.Errorf("it says %v", err)
	}
	_, err = c.call("Echo", nil)
	return err
}

func (c client) cancelledByServer() error {
	ctx, cancel := patience()
	defer cancel()
	stream, err := c.answers(ctx, "CountAndCancel", "3")
	count := -1
	for err == nil {
		count++
		var answer []byte
		err = stream.RecvMsg(&answer)
	}
	return expect(count == 3 && status.Code(err) == codes.Canceled, "after %d: %v", count, err)
}

func transport(files []string) credentials.TransportCredentials {
	if len(files) == 0 {
		return insecure.NewCredentials()
	}
	authority, err := os.ReadFile(files[0])
	if err != nil {
		panic(err)
	}
	own, err := tls.LoadX509KeyPair(files[1], files[2])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return credentials.NewTLS(&tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{own}, ServerName: "localhost",
	})
}

func runClient(address string, files []string) int {
	connection, err := grpc.NewClient(
		"passthrough:///"+address, grpc.WithTransportCredentials(transport(files)),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(32*mib), grpc.MaxCallSendMsgSize(32*mib),
			grpc.ForceCodec(rawCodec{}),
		),
	)
	if err != nil {
		panic(err)
	}
	c := client{connection}
	failures := 0
	for _, one := range []struct {
		name string
		run  func() error
	}{
		{"sizes", c.sizes}, {"large_answers", c.largeAnswers}, {"many_calls", c.manyCalls},
		{"many_streams", c.manyStreams}, {"stream_of_answers", c.streamOfAnswers},
		{"stream_of_requests", c.streamOfRequests}, {"both_stream", c.bothStream},
		{"slow_reader", c.slowReader}, {"gzip", c.gzip}, {"errors", c.errors},
		{"metadata", c.metadataBothWays}, {"unimplemented", c.unimplemented},
		{"deadline", c.deadline}, {"cancel", c.cancel},
		{"cancelled_by_server", c.cancelledByServer},
	} {
		if err := one.run(); err != nil {
			failures++
			fmt.Printf("failed %s: %v\n", one.name, err)
		} else {
			fmt.Printf("ok %s\n", one.name)
		}
	}
	return min(failures, 1)
}
