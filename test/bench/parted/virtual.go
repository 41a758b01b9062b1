package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// virtualGroup has things that a function makes, and sayPath is where it is told which.
const (
	virtualGroup = "virtual.example.com"
	sayPath      = "/say"
)

// said are the things of the function.
type said struct {
	mu  sync.Mutex
	all map[string]fruit.Apple
}

func (s *said) read(context.Context, apis.Query) ([]fruit.Apple, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all)), nil
}

// ServeHTTP takes one more.
func (s *said) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var one fruit.Apple
	if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[one.Name] = one
}

// virtual is a server with things that are stored, and things that a function makes.
func virtual() controlplane.Parts {
	s := &said{all: map[string]fruit.Apple{}}
	return controlplane.Parts{
		authz.Groups{Admins: []string{group}},
		things(ownGroup),
		apis.NewGroup(versionOf(virtualGroup), nil, nil,
			apis.Virtual[fruit.Apple, fruit.AppleList]("things", apis.Poll(50*time.Millisecond, s.read))),
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Handle(sayPath, s)
			return nil
		}),
	}
}
