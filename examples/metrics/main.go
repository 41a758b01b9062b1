// Command metrics is a metrics server without a cluster: kubectl top shows what a file says.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:6443", "address to serve HTTPS at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := controlplane.New("metrics").
		Listen(*listen).
		Storage(memory.Store{}).
		With(
			authn.Admin{Kubeconfig: "admin.kubeconfig"},
			core.Namespaces{},
			apis.NewGroup(v1beta1.SchemeGroupVersion, v1beta1.AddToScheme, nil,
				apis.Virtual[v1beta1.PodMetrics, v1beta1.PodMetricsList]("pods", apis.Poll(time.Second, usage), apis.Singular("pod")),
			),
		).
		Run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

// usage reads usage.csv: namespace, pod, container, cores, bytes.
func usage(context.Context, apis.Query) ([]v1beta1.PodMetrics, error) {
	file, err := os.Open("usage.csv")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing runs yet
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = 5
	all, err := lines.ReadAll()
	if err != nil {
		return nil, err
	}
	changed, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var pods []v1beta1.PodMetrics
	for _, line := range all {
		used, err := quantities(line[3], line[4])
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", line[1], err)
		}
		pods = append(pods, v1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: line[0], Name: line[1]},
			Timestamp:  metav1.NewTime(changed.ModTime()), Window: metav1.Duration{Duration: time.Second},
			Containers: []v1beta1.ContainerMetrics{{Name: line[2], Usage: used}},
		})
	}
	return pods, nil
}

func quantities(cores, bytes string) (corev1.ResourceList, error) {
	cpu, err := resource.ParseQuantity(cores)
	memory, err2 := resource.ParseQuantity(bytes)
	return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}, errors.Join(err, err2)
}
