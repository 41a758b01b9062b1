package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/test/database"
)

const (
	// mostLogs share one database. sharedRounds is how often each number of them is measured, in turns.
	mostLogs, sharedRounds = 3, 5
)

// measureShared measures what several logs on one database write together, each with as many of the writers as the others.
func measureShared(ctx context.Context, l *lab) error {
	title(fmt.Sprintf("Updates of 1 KiB by %d writers on one database", l.writers), "database", "flush",
		"one log: per s, CPU us of the logs, of the database", "two logs", "writes, of one's (min to max)", "three logs", "writes, of one's")
	for _, d := range databases() {
		for _, flush := range []bool{false, true} {
			var settings []string
			if flush {
				settings = append(settings, d.flush)
			}
			err := d.run(ctx, settings, func(server *database.Server) error {
				row, err := d.together(ctx, l, server)
				if err == nil {
					fmt.Printf("| %s | %s | %s |\n", d.name, map[bool]string{true: "each commit", false: "none"}[flush], row)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
	}
	return nil
}

// together opens logs on a database and has one, two and three of them write.
func (d inDatabase) together(ctx context.Context, l *lab, server *database.Server) (row string, err error) {
	var clients []*clientv3.Client
	var open func() error
	open = func() error {
		if len(clients) == mostLogs {
			row, err = l.inTurns(ctx, clients, server)
			return err
		}
		return with(ctx, d.storage(server.URL("logs")), func(c *clientv3.Client) error {
			clients = append(clients, c)
			return open()
		})
	}
	return row, open()
}

// inTurns measures the first one, two and three clients again and again, and gives the medians.
func (l *lab) inTurns(ctx context.Context, clients []*clientv3.Client, server *database.Server) (string, error) {
	took := make([][]cost, len(clients))
	for round := range sharedRounds + 1 {
		for i := range clients {
			u := &updates{clients: clients[:i+1], server: server, value: strings.Repeat("x", 1<<10), writers: l.writers}
			c, err := u.sample(ctx, sampled)
			if err != nil {
				return "", err
			}
			if round > 0 { // the first one warms up
				took[i] = append(took[i], c)
			}
		}
	}
	var columns []string
	for i, costs := range took {
		parts := make([]float64, len(costs))
		for round := range costs {
			parts[round] = costs[round].perSecond / took[0][round].perSecond
		}
		middle := slices.Clone(costs)
		slices.SortFunc(middle, func(a, b cost) int { return cmp.Compare(a.perSecond, b.perSecond) })
		columns = append(columns, middle[len(middle)/2].String())
		if slices.Sort(parts); i > 0 {
			columns = append(columns, fmt.Sprintf("%.2f (%.2f to %.2f)", parts[len(parts)/2], parts[0], parts[len(parts)-1]))
		}
	}
	return strings.Join(columns, " | "), nil
}
