// What a Go program gets from the metadata server through each library: see ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// What a program asks of its library; some with a word more.
type questions map[string]func(ctx context.Context, word string) (string, error)

func alone(ask func(context.Context) (string, error)) func(context.Context, string) (string, error) {
	return func(ctx context.Context, _ string) (string, error) { return ask(ctx) }
}

var libraries = map[string]func() questions{
	"metadata": metadataQuestions,
	"auth":     authQuestions,
	"oauth2":   oauth2Questions,
	"config":   configQuestions,
	"imds":     imdsQuestions,
}

func say(line map[string]any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(question func(context.Context, string) (string, error), step string, word string) bool {
	begun := time.Now()
	value, err := question(context.Background(), word)
	line := map[string]any{"step": step, "milliseconds": time.Since(begun).Milliseconds()}
	if err != nil {
		line["error"] = err.Error()
	} else {
		line["value"] = value
	}
	say(line)
	return err == nil
}

func main() {
	asked := libraries[os.Args[1]]()
	input := bufio.NewScanner(os.Stdin)
	say(map[string]any{"step": "begin"})
	for _, step := range os.Args[2:] {
		if step == "wait" {
			say(map[string]any{"step": step})
			input.Scan()
			continue
		}
		name, again := strings.CutPrefix(step, "until:")
		name, word, _ := strings.Cut(name, "=")
		question, known := asked[name]
		if !known {
			fmt.Fprintln(os.Stderr, "unknown step:", step)
			os.Exit(2)
		}
		for tries := 1; !ask(question, step, word) && again && tries < 20; tries++ {
			time.Sleep(time.Second)
		}
	}
}
