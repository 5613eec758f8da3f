// An image service as they are written: each request fetches its object from the store, which it knows by name, over a connection of its own.
//
//	service LISTEN STORE
//
// Go's own resolver, which reads /etc/resolv.conf. What the store does not give in two seconds is a 502.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	listen, store := os.Args[1], os.Args[2]
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		object, err := client.Get(store + request.URL.Path)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		defer object.Body.Close()
		answer.WriteHeader(object.StatusCode)
		io.Copy(answer, object.Body)
	})
	log.Fatal(http.ListenAndServe(listen, nil))
}
