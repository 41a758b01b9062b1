package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	virtualName  = "virtual"
	phaseVirtual = "Objects that a function makes"
	// virtualGroup and sayPath are those of ./bench/parted.
	virtualGroup = "virtual.example.com"
	sayPath      = "/say"
	// virtualWatchers is how many watch at a time.
	virtualWatchers = 1000
)

// measureVirtual compares watches of what is stored with those of what a function makes, in one
// server, in turns. The storage has no part in the latter: in memory, it has least in the former.
func measureVirtual(ctx context.Context, l *lab, t target) error {
	if s, ok := t.(*sailplane); !ok || s.storage != storageMemory {
		return nil
	}
	return with(ctx, l, &parted{lab: l, part: virtualName}, func(s *server) error {
		sides := []string{ownGroup, virtualGroup}
		for turn := range bursts + 1 {
			slices.Reverse(sides) // each is the first as often as the other
			cost := map[string]float64{}
			for _, group := range sides {
				things, err := thingsOf(ctx, s, group, turn)
				if err != nil {
					return fmt.Errorf("%s: %w", group, err)
				}
				cpu, delays, err := things.fanOut(ctx, l, s, virtualWatchers)
				if err != nil {
					return fmt.Errorf("%s: %w", group, err)
				}
				cost[group] = cpu
				if turn > 0 {
					row := fmt.Sprintf("%s, %d watchers", group, virtualWatchers)
					l.results.add(phaseVirtual, row+": CPU s per 100,000 events", cpu)
					l.results.latencies(phaseVirtual, row+", from write to event", delays)
				}
			}
			if turn > 0 { // the first one warms up
				l.results.add(phaseVirtual, "watchers of what a function makes: times the CPU of those of what is stored",
					cost[virtualGroup]/cost[ownGroup])
			}
		}
		return nil
	})
}

// thingsOf is what is watched in a group: a write is a create, or tells the function.
func thingsOf(ctx context.Context, s *server, group string, turn int) (watched, error) {
	client, err := s.clientset("")
	if err != nil {
		return watched{}, err
	}
	path := "/apis/" + group + "/v1/namespaces/default/things"
	list, err := client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return watched{}, err
	}
	var now metav1.PartialObjectMetadataList
	if err := json.Unmarshal(list, &now); err != nil {
		return watched{}, err
	}
	return watched{path: path, from: now.ResourceVersion, write: func(ctx context.Context, client *kubernetes.Clientset, i int, moment string) error {
		to := path
		if group == virtualGroup {
			to = sayPath
		}
		thing := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Apple","metadata":{"name":"thing-%d-%d","namespace":"default","annotations":{%q:%q}}}`,
			group, turn, i, sent, moment)
		return client.CoreV1().RESTClient().Post().AbsPath(to).SetHeader("Content-Type", "application/json").
			Body([]byte(thing)).MaxRetries(0).Do(ctx).Error()
	}}, nil
}
