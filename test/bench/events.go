package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// lentRate is how many puts there are a second while events are measured.
	lentRate, lentSeconds = 100, 10
)

func lentEventRow() string { return fmt.Sprintf("%d puts a second, from put to event", lentRate) }

// lentEvents measures from before a put of one etcd client to when another one has its event.
func (l *lab) lentEvents(ctx context.Context, k *keeper) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lateBy+lentSeconds*time.Second, errors.New("the watch did not have every put in time"))
	defer cancel()
	writer, err := k.client()
	if err != nil {
		return err
	}
	defer func() { _ = writer.Close() }() // its error only says that it was closed, as that of the next
	reader, err := k.client()
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	watch := reader.Watch(clientv3.WithRequireLeader(ctx), "/events/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first := <-watch; !first.Created {
		return fmt.Errorf("watch: %w", errors.Join(first.Err(), context.Cause(ctx)))
	}
	const n = lentRate * lentSeconds
	failed := make(chan error, 1)
	return k.phase("events", func() error {
		go func() {
			err := putSteadily(ctx, writer, n+warmUp)
			if err != nil {
				cancel() // the watch waits for no more
			}
			failed <- err
		}()
		delays, err := eventDelays(watch, n+warmUp)
		if err != nil {
			cancel()
		}
		if err := errors.Join(err, <-failed, context.Cause(ctx)); err != nil {
			return err
		}
		l.lent.latencies(phaseLending, lentEventRow(), delays[warmUp:])
		return nil
	})
}

// putSteadily puts so many values, each of which is the moment.
func putSteadily(ctx context.Context, writer *clientv3.Client, n int) error {
	tick := time.NewTicker(time.Second / lentRate)
	defer tick.Stop()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // the reader says why
		}
		if _, err := writer.Put(ctx, fmt.Sprintf("/events/%d", i), strconv.FormatInt(time.Now().UnixNano(), 10)); err != nil {
			return fmt.Errorf("put: %w", err)
		}
	}
	return nil
}

// eventDelays reads so many events.
func eventDelays(watch clientv3.WatchChan, n int) (delays []time.Duration, err error) {
	for r := range watch {
		now := time.Now()
		if err := r.Err(); err != nil {
			return nil, err
		}
		for _, e := range r.Events {
			put, err := strconv.ParseInt(string(e.Kv.Value), 10, 64)
			if err != nil {
				return nil, err
			}
			delays = append(delays, now.Sub(time.Unix(0, put)))
		}
		if len(delays) >= n {
			return delays, nil
		}
	}
	return nil, fmt.Errorf("the watch ended after %d of %d events", len(delays), n)
}
