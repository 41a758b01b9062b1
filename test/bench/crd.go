package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
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
	return with(ctx, l, t, func(s *server) error {
		if err := pause(ctx, settle); err != nil {
			return err
		}
		before, err := s.memory()
		if err != nil {
			return err
		}
		begun := time.Now()
		cpu, err := s.spent(func() error {
			return s.phase("crds", func() error { return burst(ctx, l, s) })
		})
		if err != nil {
			return err
		}
		l.results.add(phaseCRDs, fmt.Sprintf("burst of %d CRDs with an object each: s", l.crds), time.Since(begun).Seconds())
		l.results.add(phaseCRDs, fmt.Sprintf("burst of %d CRDs with an object each: CPU s", l.crds), cpu.Seconds())
		if err := pause(ctx, settle); err != nil {
			return err
		}
		after, err := s.memory()
		if err != nil {
			return err
		}
		l.results.add(phaseCRDs, rowPerCRD, mib((after.rss-before.rss)/float64(l.crds)))
		l.results.add(phaseCRDs, "memory per CRD: anonymous, MiB", mib((after.anonymous-before.anonymous)/float64(l.crds)))
		return nil
	})
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

// burst creates many CRDs, each with an object.
func burst(ctx context.Context, l *lab, s *server) error {
	definers := make([]*definer, burstClients)
	for i := range definers {
		var err error
		if definers[i], err = newDefiner(s); err != nil {
			return err
		}
	}
	_, err := repeat(ctx, burstClients, l.crds, func(ctx context.Context, client, i int) error {
		return definers[client].define(ctx, fmt.Sprintf("burst%d", i))
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
