package query_test

import (
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/query"
)

// TestDecoder reads the options of Kubernetes' own streams.
func TestDecoder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query     string
		into, out any
		fails     bool
	}{
		"command": {
			"command=ls&command=-l&stdin=true&tty=0&stdout=", &corev1.PodExecOptions{},
			&corev1.PodExecOptions{Stdin: true, Stdout: true, Command: []string{"ls", "-l"}}, false,
		},
		"log": {
			"tailLines=5&sinceTime=2026-01-02T03:04:05Z&stream=Stdout&container=c", &corev1.PodLogOptions{},
			&corev1.PodLogOptions{
				Container: "c", TailLines: ptr.To[int64](5), Stream: ptr.To("Stdout"),
				SinceTime: ptr.To(metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()}),
			}, false,
		},
		"numbers":             {"ports=1&ports=2", &corev1.PodPortForwardOptions{}, &corev1.PodPortForwardOptions{Ports: []int32{1, 2}}, false},
		"the name of a field": {"Ports=7", &struct{ Ports int8 }{}, &struct{ Ports int8 }{7}, false},
		"too large":           {"Ports=300", &struct{ Ports int8 }{}, nil, true},
		"no number":           {"tailLines=many", &corev1.PodLogOptions{}, nil, true},
		"no time":             {"sinceTime=yesterday", &corev1.PodLogOptions{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decode, err := query.Decoder(reflect.TypeOf(c.into).Elem())
			if err != nil {
				t.Fatal(err)
			}
			values, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			err = decode(values, c.into)
			if (err != nil) != c.fails {
				t.Fatalf("the error is %v", err)
			}
			if !c.fails {
				if diff := cmp.Diff(c.out, c.into); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestDecoderRefuses names what a query cannot say.
func TestDecoderRefuses(t *testing.T) {
	t.Parallel()
	for _, of := range []any{struct{ Map map[string]string }{}, struct{ List []any }{}, struct{ Deep struct{ A int } }{}, 7} {
		if _, err := query.Decoder(reflect.TypeOf(of)); err == nil {
			t.Errorf("%T: no error", of)
		}
	}
}
