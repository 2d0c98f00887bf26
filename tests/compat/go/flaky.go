package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// flakyNetwork breaks every nth connection right after a produce request: the broker has the batch, but the client
// has no response and must retry.
type flakyNetwork struct {
	every   int64
	sent    atomic.Int64
	dropped atomic.Int64
}

func (f *flakyNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &flakyConnection{Conn: connection, network: f}, nil
}

type flakyConnection struct {
	net.Conn
	network *flakyNetwork
}

// Write sends one whole request, whose frame begins with its size and its API key; Produce is key 0.
func (c *flakyConnection) Write(request []byte) (int, error) {
	written, err := c.Conn.Write(request)
	produce := len(request) >= 6 && binary.BigEndian.Uint16(request[4:]) == 0
	if err == nil && produce && c.network.sent.Add(1)%c.network.every == 0 {
		c.network.dropped.Add(1)
		time.Sleep(20 * time.Millisecond) // long enough for the broker to read it
		c.Conn.Close()
		return written, errors.New("the network broke after a produce request")
	}
	return written, err
}
