// Generator of table.txt. It reads the struct tags of the published Go modules and the schema that they ship for
// server-side apply: names, numbers, types and list keys, which are facts of the interface, and no prose.
//
//	cd crates/watchkeeper-apiserver/src/types/generate && go run . >../table.txt
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// The group versions whose kinds are in the table.
var served = []string{
	"v1", "admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1", "apps/v1", "authentication.k8s.io/v1", "authorization.k8s.io/v1",
	"autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates.k8s.io/v1", "coordination.k8s.io/v1", "discovery.k8s.io/v1",
	"events.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1", "policy/v1",
	"rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1", "apiregistration.k8s.io/v1",
}

// Types with their own encoding in JSON or protobuf.
var special = map[string]string{
	"meta/v1.Time": "time", "meta/v1.MicroTime": "microtime", "meta/v1.FieldsV1": "fields",
	"util/intstr.IntOrString": "intorstring", "api/resource.Quantity": "quantity", "pkg/runtime.RawExtension": "raw",
	"apiextensions/v1.JSON": "json", "apiextensions/v1.JSONSchemaPropsOrBool": "schemaorbool",
	"apiextensions/v1.JSONSchemaPropsOrArray":       "schemaorarray",
	"apiextensions/v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
	"authentication/v1.ExtraValue":                  "strings", "authorization/v1.ExtraValue": "strings", "certificates/v1.ExtraValue": "strings",
}

var atoms = map[string]smd.Atom{}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The schema for server-side apply is YAML in the source of client-go, in an internal package.
func readApplySchema() {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	die(err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go"))
	die(err)
	_, yaml, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	yaml, _, _ = strings.Cut(yaml, "`")
	parser, err := typed.NewParser(typed.YAMLObject(yaml))
	die(err)
	for _, def := range parser.Schema.Types {
		atoms[def.Name] = def.Atom
	}
}

func short(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	if len(parts) > 2 {
		parts = parts[len(parts)-2:]
	}
	return strings.Join(parts, "/") + "." + t.Name()
}

func long(t reflect.Type) string {
	path := t.PkgPath()
	path = strings.Replace(path, "k8s.io/", "io.k8s.", 1)
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

var done = map[string]bool{}
var types []string
var queue []reflect.Type

func spell(t reflect.Type) string {
	if name, ok := special[short(t)]; ok && t.Name() != "" {
		return name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return spell(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Uint32, reflect.Uint16, reflect.Int16, reflect.Uint8:
		return "int32"
	case reflect.Int64, reflect.Int, reflect.Uint64:
		return "int64"
	case reflect.Float64, reflect.Float32:
		return "float"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + spell(t.Elem())
	case reflect.Map:
		return "{}" + spell(t.Elem())
	case reflect.Struct:
		queue = append(queue, t)
		return short(t)
	}
	die(fmt.Errorf("no name for %v", t))
	return ""
}

func relation(atom smd.Atom, field string) string {
	if atom.Map == nil {
		// The schema omits CustomResourceDefinition; its conditions merge as those of other kinds.
		if field == "conditions" {
			return " =map:type"
		}
		return ""
	}
	found, ok := atom.Map.FindField(field)
	if !ok {
		return ""
	}
	out := ""
	if text, ok := found.Default.(string); ok && text != "" {
		out += " ~" + text
	}
	inner := found.Type.Inlined
	if found.Type.NamedType != nil {
		if found.Type.ElementRelationship != nil && *found.Type.ElementRelationship == smd.Atomic {
			out += " =atomic"
		}
		return out
	}
	switch {
	case inner.List != nil && inner.List.ElementRelationship == smd.Associative && len(inner.List.Keys) == 0:
		out += " =set"
	case inner.List != nil && inner.List.ElementRelationship == smd.Associative:
		out += " =map:" + strings.Join(inner.List.Keys, ",")
	case inner.Map != nil && inner.Map.ElementRelationship == smd.Atomic:
		out += " =atomic"
	}
	return out
}

// Prints a line per field: name, protobuf number, type, then `*` for a pointer, `!` if it has no omitempty, `=` how
// lists merge in server-side apply (default: atomic), `~` the default in list keys, `@` how lists merge in a strategic
// patch, `|` the enum values, with `_` for a space.
func describe(t reflect.Type) string {
	atom := atoms[long(t)]
	var out strings.Builder
	fmt.Fprintf(&out, "@type %s", short(t))
	if atom.Map != nil && atom.Map.ElementRelationship == smd.Atomic {
		out.WriteString(" =atomic")
	}
	out.WriteString("\n")
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type == reflect.TypeOf(metav1.TypeMeta{}) || name == "-" {
			continue
		}
		number := "0"
		if parts := strings.Split(field.Tag.Get("protobuf"), ","); len(parts) > 1 {
			number = parts[1]
		}
		kind := field.Type.Kind()
		line := ""
		if name == "" {
			name = "."
			line = spell(field.Type)
			if kind == reflect.Pointer {
				line += " *"
			}
			// The schema lists the fields of an embedded struct as those of its holder.
			if _, known := atoms[long(field.Type)]; !known {
				atoms[long(field.Type)] = atom
			}
		} else {
			line = spell(field.Type)
			omits := strings.Contains(options, "omitempty") && kind != reflect.Struct || strings.Contains(options, "omitzero")
			if kind == reflect.Pointer {
				line += " *"
			}
			if !omits {
				line += " !"
			}
			line += relation(atom, name)
			if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
				line += " @" + strategy
				if key := field.Tag.Get("patchMergeKey"); key != "" {
					line += ":" + key
				}
			}
			if values := values(field.Type); len(values) > 0 {
				line += " |" + strings.ReplaceAll(strings.Join(values, ","), " ", "_")
			}
		}
		fmt.Fprintf(&out, "%s %s %s\n", name, number, line)
	}
	return out.String()
}

func main() {
	readApplySchema()
	known := runtime.NewScheme()
	die(scheme.AddToScheme(known))
	die(apiextensionsv1.AddToScheme(known))
	die(apiregistrationv1.AddToScheme(known))
	fmt.Println("# Made by generate/main.go from k8s.io/api, k8s.io/apimachinery, k8s.io/apiextensions-apiserver, k8s.io/kube-aggregator and k8s.io/client-go v0.36.3 (Apache-2.0).")
	var roots []string
	for _, text := range served {
		gv, err := schema.ParseGroupVersion(text)
		die(err)
		for kind, t := range known.KnownTypes(gv) {
			own := !strings.HasSuffix(t.PkgPath(), "apis/meta/v1") || kind == "DeleteOptions" && text == "v1"
			if strings.HasSuffix(kind, "List") || !own || strings.HasSuffix(kind, "Options") && kind != "DeleteOptions" {
				continue
			}
			roots = append(roots, fmt.Sprintf("@kind %s %s %s", text, kind, short(t)))
			queue = append(queue, t)
		}
	}
	sort.Strings(roots)
	fmt.Println(strings.Join(roots, "\n"))
	for len(queue) > 0 {
		t := queue[0]
		queue = queue[1:]
		if !done[short(t)] {
			done[short(t)] = true
			types = append(types, describe(t))
		}
	}
	sort.Strings(types)
	fmt.Print(strings.Join(types, ""))
}
