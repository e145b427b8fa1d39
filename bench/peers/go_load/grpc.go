package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const echo = "/echo.Echo/Echo"

// raw passes bytes on: what is measured is gRPC, not protobuf.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *(v.(*[]byte)), nil }
func (raw) Unmarshal(b []byte, v any) error { *(v.(*[]byte)) = b; return nil }
func (raw) Name() string                    { return "proto" }

// serveGRPC ends with its standard input.
func serveGRPC() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		body := new([]byte)
		err := decode(body)
		return body, err
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "echo.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Echo", Handler: handler}},
	}, struct{}{})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		os.Stdin.Read(make([]byte, 1))
		server.Stop()
	}()
	return server.Serve(listener)
}

type grpcLoad struct {
	connection *grpc.ClientConn
	body       []byte
}

func connectGRPC(address string, body []byte) (load, error) {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	return &grpcLoad{connection, body}, err
}

func (l *grpcLoad) run(asked part) (answer, error) {
	return closedLoop(asked, asked.InFlight, 1, func() error {
		var got []byte
		return l.connection.Invoke(context.Background(), echo, &l.body, &got)
	})
}
