package planetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// Check tells what an object lacks, nil if nothing. The object is nil when there
// is none. It must not be changed.
type Check func(*unstructured.Unstructured) error

// absent is the error for an object that does not exist.
func absent() error { return errors.New("it does not exist") }

// Exists holds when there is an object.
func Exists() Check {
	return func(o *unstructured.Unstructured) error {
		if o == nil {
			return absent()
		}
		return nil
	}
}

// Gone holds when there is no object.
func Gone() Check {
	return func(o *unstructured.Unstructured) error {
		if o == nil {
			return nil
		}
		if o.GetDeletionTimestamp() != nil {
			return fmt.Errorf("it is being deleted, with the finalizers %q", o.GetFinalizers())
		}
		return errors.New("it still exists")
	}
}

// Condition holds when status.conditions has the type with the status, "True" if
// none is given. As with kubectl wait, a condition that was observed before the
// last change of the spec does not count.
func Condition(conditionType string, status ...string) Check {
	want := "True"
	if len(status) > 0 {
		want = status[0]
	}
	return func(o *unstructured.Unstructured) error {
		if o == nil {
			return absent()
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		if err != nil {
			return fmt.Errorf("status.conditions: %w", err)
		}
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] != conditionType {
				continue
			}
			if seen, ok := condition["observedGeneration"].(int64); ok && seen < o.GetGeneration() {
				return fmt.Errorf("condition %s is for generation %d, but the object has generation %d",
					conditionType, seen, o.GetGeneration())
			}
			if condition["status"] == want {
				return nil
			}
			return fmt.Errorf("condition %s is %v, want %s: %v: %v",
				conditionType, condition["status"], want, condition["reason"], condition["message"])
		}
		return fmt.Errorf("it has no condition %s", conditionType)
	}
}

// JSONPath holds when the path prints want: JSONPath(".status.phase", "Ready").
// Braces are optional. A field that is missing prints nothing. The language is
// that of https://kubernetes.io/docs/reference/kubectl/jsonpath/.
func JSONPath(path, want string) Check {
	if !strings.Contains(path, "{") {
		path = "{" + path + "}"
	}
	return func(o *unstructured.Unstructured) error {
		if o == nil {
			return absent()
		}
		// A parsed path keeps state: each check has its own.
		parsed := jsonpath.New("path").AllowMissingKeys(true)
		if err := parsed.Parse(path); err != nil {
			return fmt.Errorf("JSONPath %s: %w", path, err)
		}
		var got bytes.Buffer
		if err := parsed.Execute(&got, o.Object); err != nil {
			return fmt.Errorf("JSONPath %s: %w", path, err)
		}
		if got.String() != want {
			return fmt.Errorf("%s is %q, want %q", path, got.String(), want)
		}
		return nil
	}
}
