package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

type unary func(ctx context.Context, request []byte) ([]byte, error)

func echo(_ context.Context, request []byte) ([]byte, error) { return request, nil }

func large(_ context.Context, request []byte) ([]byte, error) {
	size, err := strconv.Atoi(string(request))
	return bytes.Repeat([]byte("x"), size), err
}

func fail(ctx context.Context, _ []byte) ([]byte, error) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("reason", "broken", "reason-bin", "\x00\xff"))
	told, err := status.New(codes.FailedPrecondition, "nicht möglich: 100 %\n").
		WithDetails(&errdetails.ErrorInfo{Reason: "BROKEN"})
	if err != nil {
		return nil, err
	}
	return nil, told.Err()
}

// given returns the metadata of a call's own: what it has sent, as initial metadata and trailers.
func given(ctx context.Context, _ []byte) ([]byte, error) {
	all, _ := metadata.FromIncomingContext(ctx)
	own := metadata.MD{"key": all["key"], "raw-bin": all["raw-bin"]}
	_ = grpc.SetHeader(ctx, own)
	count := string([]byte{byte(len(own["key"]) + len(own["raw-bin"]))})
	_ = grpc.SetTrailer(ctx, metadata.Join(own, metadata.Pairs("count-bin", count)))
	caller, _ := peer.FromContext(ctx)
	return []byte("ipv4:" + caller.Addr.String()), nil
}

func sleep(ctx context.Context, _ []byte) ([]byte, error) {
	<-ctx.Done()
	fmt.Println("cancelled Sleep")
	return nil, ctx.Err()
}

func count(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	wanted, size, _ := strings.Cut(string(request), ",")
	times, _ := strconv.Atoi(wanted)
	bytesEach, _ := strconv.Atoi(size)
	for number := range times {
		answer := append([]byte(strconv.Itoa(number)), bytes.Repeat([]byte("x"), bytesEach)...)
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

func sum(_ any, stream grpc.ServerStream) error {
	total := 0
	for {
		var request []byte
		err := stream.RecvMsg(&request)
		if err == io.EOF {
			answer := []byte(strconv.Itoa(total))
			return stream.SendMsg(&answer)
		}
		if err != nil {
			return err
		}
		total += len(request)
	}
}

func chat(_ any, stream grpc.ServerStream) error {
	for {
		var request []byte
		if err := stream.RecvMsg(&request); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&request); err != nil {
			return err
		}
	}
}

func method(name string, answer unary) grpc.MethodDesc {
	handler := func(
		_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
	) (any, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		result, err := answer(ctx, request)
		return &result, err
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func serve() {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(32*mib), grpc.MaxSendMsgSize(32*mib), grpc.ForceServerCodec(rawCodec{}),
	)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("Echo", echo), method("Squeezed", echo), method("Large", large),
			method("Fail", fail), method("Metadata", given), method("Sleep", sleep),
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Count", Handler: count, ServerStreams: true},
			{StreamName: "Sum", Handler: sum, ClientStreams: true},
			{StreamName: "Chat", Handler: chat, ClientStreams: true, ServerStreams: true},
		},
	}, struct{}{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(server.Serve(listener))
}
