package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// behind is a server that ./bench/behind has.
type behind struct {
	Group string `json:"group"`
	Port  int64  `json:"port"`
	ca    []byte
}

func (b behind) get(ctx context.Context, client *kubernetes.Clientset) error {
	path := "/apis/" + b.Group + "/v1/namespaces/default/things/a"
	return client.CoreV1().RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error()
}

// withBehind runs f on a server that was just started, beside others that it can be told of.
func withBehind(ctx context.Context, l *lab, t target, n int, f func(*server, []behind) error) (err error) {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	p, all, err := startBehind(ctx, l, dir, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	return on(ctx, t, dir, func(s *server) error { return f(s, all) })
}

// startBehind starts n servers in one process.
func startBehind(ctx context.Context, l *lab, dir string, n int) (_ *process, all []behind, err error) {
	cert, key, err := writeCertificate(dir, behindService+"."+metav1.NamespaceDefault+".svc")
	if err != nil {
		return nil, nil, err
	}
	ca, err := os.ReadFile(cert)
	if err != nil {
		return nil, nil, err
	}
	reader, writer := io.Pipe()
	cmd := exec.Command(l.program("behind"), "-n", strconv.Itoa(n), "-cert", cert, "-key", key)
	cmd.Stdout = writer
	p, err := begin(cmd)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		<-p.done
		_ = writer.Close() // never fails
	}()
	defer context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) })()
	for lines := bufio.NewScanner(reader); len(all) < n; {
		if !lines.Scan() {
			return nil, nil, errors.Join(fmt.Errorf("%d of %d servers started", len(all), n), lines.Err(), p.stop())
		}
		b := behind{ca: ca}
		if err := json.Unmarshal(lines.Bytes(), &b); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%q: %w", lines.Text(), err), p.stop())
		}
		all = append(all, b)
	}
	return p, all, nil
}

// announcer tells a server of others.
type announcer struct {
	services dynamic.ResourceInterface
	client   *kubernetes.Clientset
}

// announcer makes the Service of all servers, in front of the machine itself: endpoints may
// not be loopback addresses.
func (s *server) announcer(ctx context.Context) (*announcer, error) {
	client, err := s.clientset("")
	if err != nil {
		return nil, err
	}
	all, err := s.dynamics(1)
	if err != nil {
		return nil, err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: behindService},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}
	if _, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	apiServices := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	return &announcer{services: all[0].Resource(apiServices), client: client}, pause(ctx, settle)
}

// announce creates the APIService of a server.
func (a *announcer) announce(ctx context.Context, b behind) error {
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1." + b.Group},
		"spec": map[string]any{
			"group": b.Group, "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"caBundle": base64.StdEncoding.EncodeToString(b.ca),
			"service":  map[string]any{"namespace": metav1.NamespaceDefault, "name": behindService, "port": b.Port},
		},
	}}
	_, err := a.services.Create(ctx, service, metav1.CreateOptions{})
	return err
}

// await returns when a server answers.
func (a *announcer) await(ctx context.Context, b behind) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := b.get(ctx, a.client)
		if err == nil {
			return nil
		}
		if pause(ctx, pollEvery) != nil {
			return fmt.Errorf("%s does not answer: %w", b.Group, err)
		}
	}
}

// answers announces a server and returns when it answered.
func (a *announcer) answers(ctx context.Context, b behind) (time.Duration, error) {
	begun := time.Now()
	err := errors.Join(a.announce(ctx, b), a.await(ctx, b))
	return time.Since(begun), err
}
