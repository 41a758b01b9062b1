package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	release   = "plane"
	namespace = "prod"
)

// helm runs helm in a folder where it keeps what it keeps, and returns what it prints.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(helmProgram, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, &out, &log)
	}
	return out.String(), nil
}

// template renders the chart, or that in another place, with flags such as --values FILE.
func template(t *testing.T, chart string, flags ...string) (string, error) {
	t.Helper()
	return helm(t, os.DevNull, append([]string{"template", release, chart, "--namespace", namespace}, flags...)...)
}

// rendered are the objects of a chart.
type rendered []*unstructured.Unstructured

// render renders the chart and wants it to succeed.
func render(t *testing.T, flags ...string) rendered {
	t.Helper()
	out, err := template(t, folder(t), flags...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, out)
}

func decode(t *testing.T, text string) rendered {
	t.Helper()
	var all rendered
	for documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := map[string]any{}
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(object) > 0 {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
}

// of returns the only object of a kind, or nil.
func (r rendered) of(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	for _, object := range r {
		if object.GetKind() == kind {
			if found != nil {
				t.Fatalf("there are several of kind %s", kind)
			}
			found = object
		}
	}
	return found
}

// into decodes the only object of a kind.
func (r rendered) into(t *testing.T, kind string, to any) {
	t.Helper()
	object := r.of(t, kind)
	if object == nil {
		t.Fatalf("there is no %s", kind)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to); err != nil {
		t.Fatal(err)
	}
}

// samples are the files with values that the chart is tried with, by their names.
func samples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "values", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/values has %d files: %v", len(files), err)
	}
	byName := map[string]string{}
	for _, file := range files {
		if file, err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
		byName[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	return byName
}
