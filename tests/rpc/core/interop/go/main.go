// grpc-go against aerobee.rpc.core: as a client of its server, and as a server for its client.
// Messages are bytes; the methods are those of tests/support/grpc_core_server.py.
//
//	interop client ADDRESS [CA CERTIFICATE KEY]   the cases, one line each
//	interop server                                prints its port, and who was cancelled
package main

import (
	"fmt"
	"os"
)

// rawCodec hands bytes through.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// The buffer is grpc-go's own after the call.
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

func main() {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "client":
		os.Exit(runClient(os.Args[2], os.Args[3:]))
	case len(os.Args) == 2 && os.Args[1] == "server":
		serve()
	default:
		fmt.Fprintln(os.Stderr, "interop client ADDRESS [CA CERTIFICATE KEY] | interop server")
		os.Exit(2)
	}
}
