#!/bin/bash
# Kafka Streams from Maven Central, and our program that counts words by it.
set -euo pipefail
. "$(dirname "$0")/foreign.sh"
"$here/setup/kafka.sh"

install_streams() {
  rm -rf "$foreign/streams" && mkdir -p "$foreign/streams/classes" && cd "$foreign/streams"
  cat >pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>foreign</groupId><artifactId>streams</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId>
      <artifactId>kafka-streams</artifactId><version>$kafka_version</version></dependency>
  </dependencies>
</project>
POM
  mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs
  javac -d classes -cp "libs/*" "$here/streams/WordCount.java"
}
once streams "$kafka_version $(sources "$here/streams/WordCount.java")" install_streams
