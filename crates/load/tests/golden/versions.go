//go:build ignore

// Writes results as other versions of vegeta would: an older one with fewer fields, a newer one with more.
package main

import (
	"encoding/gob"
	"os"
	"time"
)

type inner struct {
	A int
	B []string
	C *inner
}

func main() {
	at := time.Date(2025, 1, 2, 3, 4, 5, 6, time.UTC)
	{
		type Result struct {
			Attack    string
			Code      uint16
			Timestamp time.Time
			Latency   time.Duration
			BytesIn   uint64
			Error     string
		}
		f, _ := os.Create(os.Args[1] + "/older.gob")
		enc := gob.NewEncoder(f)
		enc.Encode(&Result{"old", 200, at, 1500, 7, ""})
		enc.Encode(&Result{"old", 500, at.Add(time.Second), 2500, 8, "500 Internal Server Error"})
		f.Close()
	}
	{
		type Result struct {
			Flag      bool
			Attack    string
			Ratio     float64
			Nested    inner
			Latency   time.Duration
			Codes     map[string][]int
			Pair      [2]complex128
			Code      uint16
			Sent      time.Time
			Timestamp time.Time
			Names     []inner
			Seq       uint64
		}
		f, _ := os.Create(os.Args[1] + "/newer.gob")
		enc := gob.NewEncoder(f)
		enc.Encode(&Result{true, "new", 1.5, inner{1, []string{"x", ""}, &inner{2, nil, nil}}, 1500, map[string][]int{"a": {1, -2}}, [2]complex128{1 + 2i, 3}, 201, at, at, []inner{{A: 1}, {B: []string{"q"}}}, 41})
		enc.Encode(&Result{Attack: "new", Timestamp: at, Seq: 42, Code: 204})
		f.Close()
	}
	{
		f, _ := os.Create(os.Args[1] + "/foreign.gob")
		enc := gob.NewEncoder(f)
		enc.Encode(map[string]int{"a": 1})
		f.Close()
	}
}
