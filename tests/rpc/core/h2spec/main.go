// The cases of h2spec against one server: `h2spec-cases PORT [tls]`. Ends with 0 if all passed.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	withTLS := len(os.Args) > 2 && os.Args[2] == "tls"
	passed, err := h2spec.Run(&config.Config{
		Host: "127.0.0.1", Port: port, Path: "/", Timeout: 2 * time.Second, MaxHeaderLen: 4000,
		TLS: withTLS, Insecure: withTLS,
	})
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}
