package planetest

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// normalise removes from an object what differs between runs.
func normalise(o *unstructured.Unstructured) {
	for _, field := range []string{"managedFields", "uid", "resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	replaceVarying(o.Object)
}

// replaceVarying replaces points in time, UIDs and resource versions everywhere below a value.
func replaceVarying(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			replaceVarying(item)
		}
	case map[string]any:
		for key, item := range v {
			if text, ok := item.(string); ok {
				v[key] = plainText(key, text)
				continue
			}
			replaceVarying(item)
		}
	}
}

func plainText(key, text string) string {
	switch lower := strings.ToLower(key); {
	case strings.HasSuffix(lower, "time") || strings.HasSuffix(lower, "timestamp"):
		if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return "<time>"
		}
	case lower == "uid":
		if _, err := uuid.Parse(text); err == nil {
			return "<uid>"
		}
	case key == "resourceVersion":
		return "<resourceVersion>"
	}
	return text
}
