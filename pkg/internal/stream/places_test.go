package stream_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/internal/stream"
)

// TestPlaces: a user may have so many streams open, and others theirs.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var p stream.Places
	jane, robots := &user.DefaultInfo{Name: "jane"}, []user.Info{
		&user.DefaultInfo{Name: "system:serviceaccount:shop:a"}, &user.DefaultInfo{Name: "system:serviceaccount:shop:b"},
	}
	var last func()
	for i := range stream.MostOpen {
		leave, err := p.Take(jane)
		if err != nil {
			t.Fatal(err)
		}
		last = leave
		if _, err := p.Take(robots[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	for _, who := range append(robots, jane) {
		if _, err := p.Take(who); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s has one more: %v", who.GetName(), err)
		}
	}
	last()
	last() // leaves once
	if _, err := p.Take(jane); err != nil {
		t.Errorf("one has left: %v", err)
	}
	if _, err := p.Take(jane); err == nil {
		t.Error("one has left, and two came")
	}
}
