package clients

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestProtobuf speaks protobuf with the built-in groups only, as Kubernetes does.
func TestProtobuf(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		recorded := &recorder{}
		config := recorded.wrap(s.overTLS)
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf
		all := clientset(t, config).CoreV1().ConfigMaps("default")
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "colours"}, BinaryData: map[string][]byte{"bytes": {0, 255}}}
		created, err := all.Create(ctx, m, metav1.CreateOptions{})
		must(t, err)
		list, err := all.List(ctx, metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 1 || string(list.Items[0].BinaryData["bytes"]) != "\x00\xff" {
			t.Errorf("list: %+v", list)
		}
		_, err = all.Patch(ctx, "colours", types.StrategicMergePatchType, []byte(`{"data":{"sky":"blue"}}`), metav1.PatchOptions{})
		must(t, err)
		w, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion})
		must(t, err)
		if e := receive(t, "watch", w.ResultChan()); e.Object.(*corev1.ConfigMap).Data["sky"] != "blue" {
			t.Errorf("event: %+v", e)
		}
		w.Stop()
		_, err = clientset(t, config).CoreV1().ConfigMaps("default").Get(ctx, "absent", metav1.GetOptions{})
		if statusOf(err) != http.StatusNotFound {
			t.Errorf("get of what is not there: %v", err)
		}
		for i, got := range recorded.contentTypes() {
			want := runtime.ContentTypeProtobuf
			if i == 3 {
				want += ";stream=watch"
			}
			if got != want {
				t.Errorf("answer %d is of type %q, want %q", i, got, want)
			}
		}

		for name, resource := range map[string]schema.GroupVersionResource{"custom": widgets, "typed": apples} {
			body, err := object(resource, "lever").MarshalJSON()
			must(t, err)
			rest := raw(t, s.overTLS)
			path := "/apis/" + resource.Group + "/" + resource.Version + "/namespaces/default/" + resource.Resource
			err = rest.Post().AbsPath(path).SetHeader("Content-Type", runtime.ContentTypeProtobuf).Body(body).Do(ctx).Error()
			if statusOf(err) != http.StatusUnsupportedMediaType {
				t.Errorf("%s: post of protobuf: %v, want status 415", name, err)
			}
			err = rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeProtobuf).Do(ctx).Error()
			if statusOf(err) != http.StatusNotAcceptable {
				t.Errorf("%s: get of protobuf: %v, want status 406", name, err)
			}
			// Clients that would take JSON as well get it.
			_, err = rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON).DoRaw(ctx)
			must(t, err)
		}
	})
}

// raw is a client that says only what a test tells it to.
func raw(t *testing.T, c *rest.Config) *rest.RESTClient {
	t.Helper()
	c = rest.CopyConfig(c)
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(c)
	must(t, err)
	return client
}
