package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/test/crds"
)

const (
	phaseCRDs      = "CRDs"
	rowFirstObject = "POST of a CRD to its first object, ms"
	rowPerCRD      = "memory per CRD: RSS, MiB"
	burstClients   = 8
	// definitions are how many CRDs a round measures one by one.
	definitions = 3
	// settle is for what the server still does after the last answer.
	settle = 5 * time.Second
)

func measureDefinitions(ctx context.Context, l *lab, t target) error {
	err := with(ctx, l, t, func(s *server) error {
		if err := firstObjects(ctx, l, s); err != nil {
			return err
		}
		return kubectlApply(ctx, l, s)
	})
	if err != nil {
		return err
	}
	if err := with(ctx, l, t, func(s *server) error { return realDefinitions(ctx, l, s) }); err != nil {
		return err
	}
	return with(ctx, l, t, func(s *server) error { return manyDefinitions(ctx, l, s) })
}

// realDefinitions measures CRDs of a project, which are created one after the other,
// and when they are established.
func realDefinitions(ctx context.Context, l *lab, s *server) error {
	files, err := crds.Crossplane().Files(ctx)
	if err != nil {
		return err
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(data, &all[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	d, err := newDefiner(s)
	if err != nil {
		return err
	}
	var took []time.Duration
	cpu, err := s.spent(func() error {
		return s.phase("real CRDs", func() (err error) {
			took, err = d.establish(ctx, all)
			return err
		})
	})
	if err != nil {
		return err
	}
	l.results.add(phaseCRDs, fmt.Sprintf("%d real CRDs: CPU of each, ms", len(all)), milliseconds(cpu)/float64(len(all)))
	l.results.add(phaseCRDs, "real CRDs: established after, median, ms", milliseconds(took[len(took)/2]))
	l.results.add(phaseCRDs, "real CRDs: established after, longest, ms", milliseconds(took[len(took)-1]))
	return nil
}

// establish creates CRDs and waits until all are established. It returns after what
// time each was, the shortest first.
func (d *definer) establish(ctx context.Context, all []*apiextensionsv1.CustomResourceDefinition) ([]time.Duration, error) {
	client := d.crds.ApiextensionsV1().CustomResourceDefinitions()
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	failed := make(chan error, 1)
	var mu sync.Mutex
	created := map[string]time.Time{}
	go func() {
		for _, crd := range all {
			mu.Lock()
			created[crd.Name] = time.Now()
			mu.Unlock()
			if _, err := client.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
				failed <- err
				return
			}
		}
	}()
	took := map[string]time.Duration{}
	for len(took) < len(all) {
		select {
		case e := <-w.ResultChan():
			crd, ok := e.Object.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("watch CRDs: %v", e)
			}
			if took[crd.Name] == 0 && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
				mu.Lock()
				took[crd.Name] = time.Since(created[crd.Name])
				mu.Unlock()
			}
		case err := <-failed:
			return nil, err
		case <-time.After(patience):
			return nil, fmt.Errorf("%d of %d CRDs are established after %v", len(took), len(all), patience)
		}
	}
	return slices.Sorted(maps.Values(took)), nil
}

// manyDefinitions measures what many CRDs take, of time and of memory. The first
// ones, which bring what all have in common and the connections, are not counted.
func manyDefinitions(ctx context.Context, l *lab, s *server) error {
	definers, err := newDefiners(s)
	if err != nil {
		return err
	}
	for i, d := range definers {
		if err := d.define(ctx, fmt.Sprintf("common%d", i)); err != nil {
			return err
		}
	}
	before, err := held(ctx, s)
	if err != nil {
		return err
	}
	begun := time.Now()
	cpu, err := s.spent(func() error {
		return s.phase("crds", func() error { return burst(ctx, l, definers) })
	})
	if err != nil {
		return err
	}
	l.results.add(phaseCRDs, fmt.Sprintf("burst of %d CRDs with an object each: s", l.crds), time.Since(begun).Seconds())
	l.results.add(phaseCRDs, fmt.Sprintf("burst of %d CRDs with an object each: CPU s", l.crds), cpu.Seconds())
	if err := pause(ctx, settle); err != nil {
		return err
	}
	// A CRD whose status changed while it was first used is served anew when it
	// is used next, by all servers: until then it takes less.
	if err := readAll(ctx, l, definers); err != nil {
		return err
	}
	after, err := held(ctx, s)
	if err != nil {
		return err
	}
	for i, row := range perCRD() {
		l.results.add(phaseCRDs, row.name, (after[i]-before[i])/float64(l.crds))
	}
	return nil
}

// held is what a server holds in memory when it has settled and its garbage is
// collected, as the rows of perCRD. A server that has just started has room for
// many CRDs in the garbage of its start, so that RSS alone would say little.
func held(ctx context.Context, s *server) ([]float64, error) {
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	metrics, err := s.collected(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.memory()
	if err != nil {
		return nil, err
	}
	rows := perCRD()
	all := make([]float64, len(rows))
	for i, row := range rows {
		all[i] = row.of(m, metrics)
	}
	return all, nil
}

type memoryRow struct {
	name string
	of   func(m usage, metrics map[string]float64) float64
}

// perCRD are the rows about memory. What metrics tell is of the API server alone:
// a storage beside it has its own.
func perCRD() []memoryRow {
	metric := func(name string) func(usage, map[string]float64) float64 {
		return func(_ usage, metrics map[string]float64) float64 { return mib(metrics[name]) }
	}
	return []memoryRow{
		{rowPerCRD, func(m usage, _ map[string]float64) float64 { return mib(m.rss) }},
		{"memory per CRD: anonymous, MiB", func(m usage, _ map[string]float64) float64 { return mib(m.anonymous) }},
		{"memory per CRD: live heap of the API server, MiB", metric("go_gc_heap_live_bytes")},
		{"memory per CRD: stacks of the API server, MiB", metric("go_memstats_stack_inuse_bytes")},
		{"goroutines per CRD of the API server", func(_ usage, metrics map[string]float64) float64 { return metrics["go_goroutines"] }},
	}
}

// firstObjects measures from the POST of a CRD to the answer of the first
// create of its object that succeeds. Creates are retried at once.
func firstObjects(ctx context.Context, l *lab, s *server) error {
	d, err := newDefiner(s)
	if err != nil {
		return err
	}
	return s.phase("first object", func() error {
		for i := range definitions {
			begun := time.Now()
			if err := d.define(ctx, fmt.Sprintf("first%d", i)); err != nil {
				return err
			}
			l.results.add(phaseCRDs, rowFirstObject, milliseconds(time.Since(begun)))
		}
		return nil
	})
}

// newDefiners are as many clients, each with its own connections, as a burst has.
func newDefiners(s *server) ([]*definer, error) {
	definers := make([]*definer, burstClients)
	for i := range definers {
		var err error
		if definers[i], err = newDefiner(s); err != nil {
			return nil, err
		}
	}
	return definers, nil
}

// burst creates many CRDs, each with an object.
func burst(ctx context.Context, l *lab, definers []*definer) error {
	_, err := repeat(ctx, burstClients, l.crds, func(ctx context.Context, client, i int) error {
		return definers[client].define(ctx, fmt.Sprintf("burst%d", i))
	})
	return err
}

// readAll reads the objects of a burst.
func readAll(ctx context.Context, l *lab, definers []*definer) error {
	_, err := repeat(ctx, burstClients, l.crds, func(ctx context.Context, client, i int) error {
		o := object(fmt.Sprintf("burst%d", i))
		objects := definers[client].objects.Resource(definition(fmt.Sprintf("burst%d", i)).resource()).Namespace(o.GetNamespace())
		_, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})
		return err
	})
	return err
}

// kubectlApply measures the same with two kubectl processes, as a user sees it.
func kubectlApply(ctx context.Context, l *lab, s *server) error {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	kubectl := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, l.program("kubectl"), append([]string{"--kubeconfig=" + s.kubeconfig}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir) // its caches
		return cmd.CombinedOutput()
	}
	for i := range definitions {
		name := fmt.Sprintf("kubectl%d", i)
		files := [2]string{filepath.Join(dir, name+"-crd.yaml"), filepath.Join(dir, name+".yaml")}
		for i, o := range []any{definition(name).crd(), object(name)} {
			b, err := yaml.Marshal(o)
			if err != nil {
				return err
			}
			if err := os.WriteFile(files[i], b, 0o600); err != nil {
				return err
			}
		}
		begun := time.Now()
		if out, err := kubectl("apply", "-f", files[0]); err != nil {
			return fmt.Errorf("kubectl apply of a CRD: %w\n%s", err, out)
		}
		established := time.Now()
		for {
			out, err := kubectl("apply", "-f", files[1])
			if err == nil {
				break
			}
			if !bytes.Contains(out, []byte("no matches for kind")) && !bytes.Contains(out, []byte("NotFound")) {
				return fmt.Errorf("kubectl apply of a custom resource: %w\n%s", err, out)
			}
		}
		l.results.add(phaseCRDs, "kubectl apply of a CRD, then of its object, ms", milliseconds(time.Since(begun)))
		l.results.add(phaseCRDs, "of these, kubectl apply of the object, ms", milliseconds(time.Since(established)))
	}
	return nil
}

// definer creates CRDs.
type definer struct {
	crds    *apiextensionsclient.Clientset
	objects *dynamic.DynamicClient
}

func newDefiner(s *server) (*definer, error) {
	crds, err := apiextensionsclient.NewForConfig(s.client(""))
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(s.client(""))
	return &definer{crds, objects}, err
}

// define creates a CRD and, as soon as the server lets it, an object of it.
func (d *definer) define(ctx context.Context, name string) error {
	crd := definition(name)
	if _, err := d.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd.crd(), metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the CRD was never served"))
	defer cancel()
	for {
		_, err := d.objects.Resource(crd.resource()).Namespace(metav1.NamespaceDefault).Create(ctx, object(name), metav1.CreateOptions{})
		if err == nil || !apierrors.IsNotFound(err) || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
