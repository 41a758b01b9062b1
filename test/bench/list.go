package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	phaseList = "Long lists"
	longPage  = 500
	longLists = 3
)

// namespace has many objects.
const namespace = "long"

// measureList lists many objects at once, as a client that starts does, and starts the
// server on them.
func measureList(ctx context.Context, l *lab, t target) error {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	if err := on(ctx, t, dir, func(s *server) error { return longListsOf(ctx, l, s) }); err != nil {
		return err
	}
	return on(ctx, t, dir, func(s *server) error {
		client, err := s.clientset("")
		if err != nil {
			return err
		}
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil // what is in memory only is gone
		}
		l.results.add(phaseList, fmt.Sprintf("start on %d ConfigMaps, ms", l.objects), milliseconds(s.startWall))
		return firstList(ctx, l, s, "JSON, just after a start")
	})
}

// longListsOf fills the server, and lists.
func longListsOf(ctx context.Context, l *lab, s *server) error {
	if err := fillAnew(ctx, s, namespace, l.objects); err != nil {
		return err
	}
	if err := firstList(ctx, l, s, "JSON, the first"); err != nil {
		return err
	}
	for _, kind := range longKinds() {
		client, err := s.clientset(kind.contentType)
		if err != nil {
			return err
		}
		var took []time.Duration
		cpu, err := s.spent(func() error {
			return s.phase("list "+kind.name, func() (err error) {
				took, err = repeat(ctx, 1, longLists, func(ctx context.Context, _, _ int) error {
					return listAll(ctx, client, namespace, l.objects, kind.page)
				})
				return err
			})
		})
		if err != nil {
			return err
		}
		l.results.add(phaseList, longRow(l.objects, kind.name)+": ms", milliseconds(quantile(took, 0.5)))
		l.results.add(phaseList, longRow(l.objects, kind.name)+": CPU s", cpu.Seconds()/longLists)
	}
	return nil
}

// firstList measures the list that has the server fill the watch cache, once.
func firstList(ctx context.Context, l *lab, s *server, kind string) error {
	client, err := s.clientset(runtime.ContentTypeJSON)
	if err != nil {
		return err
	}
	begun := time.Now()
	cpu, err := s.spent(func() error { return listAll(ctx, client, namespace, l.objects, 0) })
	if err != nil {
		return err
	}
	l.results.add(phaseList, longRow(l.objects, kind)+": ms", milliseconds(time.Since(begun)))
	l.results.add(phaseList, longRow(l.objects, kind)+": CPU s", cpu.Seconds())
	return nil
}

func longRow(objects int, kind string) string {
	return fmt.Sprintf("list of %d ConfigMaps, %s", objects, kind)
}

// listing is one way of listing.
type listing struct {
	name, contentType string
	page              int64
}

func longKinds() []listing {
	return []listing{
		{"JSON", runtime.ContentTypeJSON, 0},
		{fmt.Sprintf("JSON in pages of %d", longPage), runtime.ContentTypeJSON, longPage},
		{"protobuf", runtime.ContentTypeProtobuf, 0},
	}
}
