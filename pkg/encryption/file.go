package encryption

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// manual is where the fields are described.
const manual = "https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/"

// check finds mistakes that upstream reports badly: permissions, syntax and
// another kind of object. Errors have no key in them.
func check(file string) error {
	content, err := secretfile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("encryption configuration: %w: write one, see %s", err, manual)
	}
	if err != nil {
		return fmt.Errorf("encryption configuration: %w", err)
	}
	if len(content) == 0 {
		return fmt.Errorf("encryption configuration %s: the file is empty: see %s", file, manual)
	}
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.Unmarshal(content, &c); err != nil {
		return explain(file, err)
	}
	want := apiserverv1.SchemeGroupVersion.WithKind("EncryptionConfiguration")
	if got := c.GroupVersionKind(); got != want {
		return fmt.Errorf("encryption configuration %s: found apiVersion %q, kind %q, want %s, %s",
			file, c.APIVersion, c.Kind, want.GroupVersion(), want.Kind)
	}
	return nil
}

// explain adds to an error the file, the line of the first field it names, and
// where to read on.
func explain(file string, err error) error {
	where := file
	path := regexp.MustCompile(`resources(\[\d+\])?(\.\w+(\[\d+\])?)*`).FindString(err.Error())
	if content, readErr := os.ReadFile(file); readErr == nil && path != "" {
		if line := lineOf(content, path); line > 0 {
			where = fmt.Sprintf("%s: line %d", file, line)
		}
	}
	return fmt.Errorf("encryption configuration %s: %w: correct it, see %s", where, err, manual)
}

// lineOf is the line of the field at a path such as resources[0].providers, or
// of the last one on the way that exists; 0 when none does.
func lineOf(content []byte, path string) int {
	var document yamlv3.Node
	if yamlv3.Unmarshal(content, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	node, line := document.Content[0], 0
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		var next *yamlv3.Node
		if i, err := strconv.Atoi(step); err == nil && node.Kind == yamlv3.SequenceNode && i < len(node.Content) {
			next = node.Content[i]
			line = next.Line
		}
		for i := 0; node.Kind == yamlv3.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				next, line = node.Content[i+1], node.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line
}
